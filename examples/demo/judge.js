// @ts-check
// The judge: a separate process that reads the recorded history and reports whether every promise was kept.
import { painter } from "./paint.js";
import { readHistory } from "./history.js";
import { judge } from "./verdict.js";

const SHOWN = 5;

/**
 * @param {import("./history.js").History} history
 * @param {ReturnType<typeof judge>} verdict
 * @param {import("./paint.js").Paint} paint
 */
function report({ entries, changes, run }, { kept, checks }, paint) {
  const title = `Verdict, by a separate process, from ${entries.length} records and ${changes.length} changes in etcd`;
  console.log(`\n  ${paint.bold(title)}`);
  for (const check of checks) {
    const sign = check.kept ? paint.green("✔") : paint.red("✖");
    console.log(`  ${sign} ${check.promise.padEnd(22)} ${check.finding}`);
    for (const line of check.broken.slice(0, SHOWN)) console.log(paint.red(`      ${line}`));
    if (check.broken.length > SHOWN) console.log(paint.red(`      and ${check.broken.length - SHOWN} more`));
  }
  console.log(`\n  ${(kept ? paint.green : paint.red)(conclusion(kept, run.sabotage))}\n`);
}

/**
 * @param {boolean} kept
 * @param {boolean} sabotage
 */
function conclusion(kept, sabotage) {
  if (kept) return "All promises kept.";
  if (!sabotage) return "A promise was broken.";
  return "A promise was broken, as sabotage does: a lock alone cannot stop a holder that wakes up late.";
}

const [, , folder = "", form] = process.argv;
const history = readHistory(folder);
const verdict = judge(history);
if (form === "json") for (const check of verdict.checks) console.log(JSON.stringify(check));
else report(history, verdict, painter(form === "color"));
process.exitCode = verdict.kept ? 0 : 1;
