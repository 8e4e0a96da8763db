// npm run sim:fidelity -- --version 3.6 --operations 100000 [--seed N] [--against 3.7] [--without "probes,keysOnly"]
// npm run sim:fidelity -- --version 3.6 --lies
// npm run sim:fidelity -- --version 3.6 --quirks
// npm run sim:fidelity -- --version 3.6 --calls 10000 [--members 3] [--seed N] [--from N] [--record FILE]
import { appendFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { EXIT_NOT_RUN } from "../../../scripts/exit-not-run.js";
import { EtcdMissingError, findEtcd } from "../../support/etcd/etcd.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { AVOIDABLE, type Avoidable } from "./programs/avoid.js";
import { campaign, type Named, type Totals } from "./campaign.js";
import { deviate, switched, type Deviation } from "./deviations.js";
import { CallsCampaign } from "./calls/campaign.js";
import { LIES } from "./lies.js";
import { RealSubject } from "./subjects/real-subject.js";
import { SimSubject } from "./subjects/sim-subject.js";

const { values } = parseArgs({
  options: {
    version: { type: "string" },
    /** Another etcd instead of the simulated one. */
    against: { type: "string" },
    operations: { type: "string", default: "100000" },
    seed: { type: "string", default: "1" },
    /** Ends after so many. */
    differences: { type: "string", default: "1" },
    /** Leases expire in one program of so many. */
    expiry: { type: "string", default: "50" },
    /** What the programs leave out, separated by commas: see avoid.ts. */
    without: { type: "string", default: "" },
    /** Small deviations of the simulated etcd, one after the other: each must be found. */
    lies: { type: "boolean", default: false },
    /** The simulated etcd with one switch of its version turned over, one after the other: each must be found. */
    quirks: { type: "boolean", default: false },
    /** So many programs of users' calls, on memoryEtcd() in virtual time, from the one with this number. */
    calls: { type: "string" },
    from: { type: "string", default: "0" },
    /** A table in Markdown that gets a row for each part of the programs. */
    record: { type: "string" },
    members: { type: "string", default: "1" },
  },
});

async function real(version: string | undefined): Promise<Named & { readonly subject: RealSubject }> {
  const subject = await RealSubject.start(version);
  return { name: `etcd ${subject.version}`, subject };
}

const seriesOf = (version: string): SimVersion => /^\d+\.\d+/.exec(version)![0] as SimVersion;

function simulated(version: string): Named {
  return { name: "simulated", subject: new SimSubject({ version: seriesOf(version) }) };
}

function print(totals: Totals, seconds: number): void {
  const { operations, rejected, revisions, events, differences, unsteady } = totals;
  const perSecond = Math.round(operations / seconds);
  console.log(
    `${operations} operations (${rejected} rejected), ${revisions} revisions, ${events} events, ` +
      `${perSecond} operations/s, ${differences} differences, ${unsteady} that did not occur again`,
  );
}

async function compareAll(): Promise<void> {
  const { version, against } = values;
  const first = await real(version);
  const other = against === undefined ? simulated(first.subject.version) : await real(against);
  const started = performance.now();
  try {
    const totals = await campaign([first, other], {
      seed: values.seed,
      operations: Number(values.operations),
      differences: Number(values.differences),
      expiryEvery: Number(values.expiry),
      avoided: new Set(AVOIDABLE.filter((name: Avoidable) => values.without.split(",").includes(name))),
      log: console.log,
    });
    print(totals, (performance.now() - started) / 1000);
    process.exitCode = totals.differences > 0 ? 1 : 0;
  } finally {
    await Promise.all([first.subject.close(), other.subject.close()]);
  }
}

const withLies = (): Deviation[] => LIES.map(({ name, sabotage }) => ({ name, options: { sabotage } }));

async function find(deviationsOf: (series: SimVersion) => Deviation[]): Promise<void> {
  const { subject, name } = await real(values.version);
  const series = seriesOf(subject.version);
  try {
    for (const deviation of deviationsOf(series)) {
      const verdict = await deviate({ name, subject }, series, { deviation, seed: values.seed });
      console.log(`${deviation.name.padEnd(55)} ${verdict ?? "NOT FOUND"}`);
      if (verdict === undefined) process.exitCode = 1;
    }
  } finally {
    await subject.close();
  }
}

/** Programs on one etcd, whose history grows. */
const PROGRAMS_AT_ONCE = 2000;

async function compareAllCalls(programs: number): Promise<void> {
  const { etcd: binary } = await findEtcd({ version: values.version });
  const options = {
    ...({ seed: values.seed, members: values.members === "3" ? 3 : 1, binary, log: console.log } as const),
  };
  const first = Number(values.from);
  for (let n = first; n < first + programs; n += PROGRAMS_AT_ONCE) {
    const started = performance.now();
    const end = Math.min(n + PROGRAMS_AT_ONCE, first + programs);
    const totals = await new CallsCampaign(options, n, end).run();
    const rate = totals.programs / ((performance.now() - started) / 1000);
    const numbers = Object.entries(totals).map(([name, count]) => `${count} ${name}`);
    console.log(`${numbers.join(", ")}; ${rate.toFixed(1)} programs/s`);
    const { steps, grants, losses, errors, differences, unsteady } = totals;
    const counted = [steps, grants, losses, errors, differences, unsteady];
    const cells = [`${n} to ${end - 1}`, values.version, options.members, ...counted];
    if (values.record !== undefined) appendFileSync(values.record, `| ${cells.join(" | ")} |\n`);
    if (totals.differences > 0) process.exitCode = 1;
  }
}

function compareOrFind(): Promise<void> {
  if (values.calls !== undefined) return compareAllCalls(Number(values.calls));
  if (values.lies) return find(withLies);
  return values.quirks ? find(switched) : compareAll();
}

await compareOrFind().catch((error: unknown) => {
  if (!(error instanceof EtcdMissingError)) throw error;
  console.log(`not run: ${error.message}`);
  process.exitCode = EXIT_NOT_RUN;
});
