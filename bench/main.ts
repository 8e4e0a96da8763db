// `npm run bench`: the cost and the speed of leasehold, next to other locks on the same servers in the same run. Exit
// code 1: leasehold itself could not be measured somewhere. A missed target is reported but does not fail the run:
// machines differ.
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { EtcdMissingError, exitWhenMissing } from "../test/support/etcd/etcd.js";
import { Guardian } from "../test/support/servers/guarded.js";
import { load, machine } from "./frame/machine.js";
import { Bench, type Asked } from "./frame/rounds.js";
import { parseOptions, USAGE, type Options } from "./options.js";
import type { PeerName } from "./peers/peers.js";
import { QUESTIONS } from "./questions/questions.js";
import { plotOf, operationsWith, resultsPage } from "./report/pages.js";
import { verdictOf, type Report, type Result } from "./report/report.js";
import { medians } from "./report/statistics.js";
import { reportText, resultText, warnings } from "./report/text.js";

const OPERATIONS = new URL("../docs/operations.md", import.meta.url);
const RESULTS = new URL("./RESULTS.md", import.meta.url);
const PLOT = new URL("./plot.svg", import.meta.url);
const EX_USAGE = 64;
/** The peers that consist of leasehold's own code. */
const OWN: readonly PeerName[] = ["leasehold", "leasehold-sticky", "leasehold-etcd3", "bare-http2"];

async function main(): Promise<void> {
  const options = optionsOrUsage();
  if (options === undefined) return;
  const report = await measure(options);
  if (options.json) console.log(JSON.stringify(report, null, 2));
  else console.log(reportText(report).join("\n"));
  if (options.write) write(report);
  process.exitCode = ownFailures(report) > 0 ? 1 : 0;
}

const ownFailures = ({ questions }: Report) =>
  questions.flatMap(({ failed }) => failed).filter(({ peer }) => OWN.includes(peer)).length;

function optionsOrUsage(): Options | undefined {
  try {
    const names = QUESTIONS.map(({ name }) => name);
    const options = parseOptions(process.argv.slice(2), names);
    if (!options.help) return options;
    console.log(`${USAGE}\n`);
    for (const { name, title } of QUESTIONS) console.log(`  ${name.padEnd(16)}${title}`);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    process.exitCode = EX_USAGE;
  }
  return undefined;
}

async function measure({ only, inCase, quick, rounds, build }: Options): Promise<Report> {
  const begun = performance.now();
  const start = { quick, loadAtStart: load(), machine: machine() };
  for (const warning of warnings(start)) console.error(warning);
  const guardian = new Guardian(await mkdtemp(path.join(os.tmpdir(), "leasehold-bench-")));
  const seconds = () => (performance.now() - begun) / 1000;
  const onRun = (what: string) => console.error(`${seconds().toFixed(1).padStart(6)} s  ${what}`);
  const bench = new Bench({ scale: { quick, rounds }, inCase, build, guardian, onRun });
  try {
    const questions: Result[] = [];
    for (const question of QUESTIONS.filter(({ name }) => only.includes(name))) {
      const result = resultOf(await bench.ask(question));
      for (const line of resultText(result)) console.error(line);
      questions.push(result);
    }
    const { versions, notRun } = bench;
    return {
      ...{ ...start, loadAtEnd: load(), seconds: seconds(), questions },
      ...{ versions: Object.fromEntries(versions), notRun: Object.fromEntries(notRun) },
    };
  } finally {
    await bench.stop();
    await guardian.dismiss();
  }
}

function write(report: Report): void {
  writeFileSync(PLOT, plotOf(report));
  writeFileSync(RESULTS, resultsPage(report));
  writeFileSync(OPERATIONS, operationsWith(readFileSync(OPERATIONS, "utf8"), report));
}

function resultOf({ question, rows, failed, servers }: Asked): Result {
  const { name, title, members, columns, targets } = question;
  const judged = rows.map((row) => ({ ...row, medians: medians(row.rounds) }));
  const verdicts = targets.flatMap((target) => verdictOf(target, judged) ?? []);
  return { name, title, members, columns, failed, servers, rows: judged, verdicts };
}

try {
  await main();
} catch (error) {
  if (error instanceof EtcdMissingError) exitWhenMissing(error);
  throw error;
}
