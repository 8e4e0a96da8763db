// @ts-check
// The judge: a separate process that reads the recorded history and reports whether every promise was kept.
import { painter, wantsColour } from "./paint.js";
import { readHistory } from "./history.js";
import { judge } from "./verdict.js";

const SHOWN = 5;

/**
 * @param {import("./history.js").History} history
 * @param {import("./paint.js").Paint} paint
 */
function report(history, paint) {
  const { kept, checks } = judge(history);
  const { entries, changes } = history;
  const title = `Verdict, by a separate process, from ${entries.length} records and ${changes.length} changes in etcd`;
  console.log(`\n  ${paint.bold(title)}`);
  for (const check of checks) {
    const sign = check.kept ? paint.green("✔") : paint.red("✖");
    console.log(`  ${sign} ${check.promise.padEnd(22)} ${check.finding}`);
    for (const line of check.broken.slice(0, SHOWN)) console.log(paint.red(`      ${line}`));
    if (check.broken.length > SHOWN) console.log(paint.red(`      and ${check.broken.length - SHOWN} more`));
  }
  return kept;
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

const paint = painter(wantsColour(process.stdout));
const history = readHistory(process.argv[2] ?? "");
const kept = report(history, paint);
console.log(`\n  ${(kept ? paint.green : paint.red)(conclusion(kept, history.run.sabotage))}\n`);
process.exitCode = kept ? 0 : 1;
