// `npm run bench:compare -- OLD NEW`: two builds (directories like dist/) in one process on one etcd, round after round in
// turns: processor time and time for each lock and release of one name, alone and with contenders. What else the machine does
// falls on both alike, so their ratio shows even small changes.
import path from "node:path";
import { pathToFileURL } from "node:url";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { markdownTable } from "../test/support/fixtures/markdown.js";
import { median } from "./report/statistics.js";

const CONTENDERS = [1, 2, 10];
const ROUNDS = 24;
const LOCKS = 500;
/** Locks of each build before the first round: until its code is compiled. */
const WARM_UP = 5000;

type Build = typeof import("../src/index.js");

/** For each lock and release, in microseconds. */
interface Cost {
  readonly cpu: number;
  readonly time: number;
}

/** One build with its contenders for one name. */
class Side {
  readonly costs: Cost[] = [];
  readonly #clusters: readonly ReturnType<Build["connect"]>[];
  readonly #mutexes: readonly InstanceType<Build["Mutex"]>[];

  constructor({ connect, Mutex }: Build, hosts: readonly string[], contenders: number) {
    this.#clusters = Array.from({ length: contenders }, () => connect({ hosts: [...hosts] }));
    const name = `compare/${process.hrtime.bigint()}`;
    this.#mutexes = this.#clusters.map((cluster) => new Mutex(cluster, name));
  }

  async lock(times: number): Promise<void> {
    let left = times;
    const contend = async (mutex: InstanceType<Build["Mutex"]>): Promise<void> => {
      while (left-- > 0) await (await mutex.lock()).release();
    };
    await Promise.all(this.#mutexes.map(contend));
  }

  async round(): Promise<void> {
    const [before, start] = [process.cpuUsage(), performance.now()];
    await this.lock(LOCKS);
    const { user, system } = process.cpuUsage(before);
    this.costs.push({ cpu: (user + system) / LOCKS, time: ((performance.now() - start) * 1000) / LOCKS });
  }

  async close(): Promise<void> {
    await Promise.all(this.#clusters.map((cluster) => cluster.close()));
  }
}

async function compare(builds: readonly Build[], hosts: readonly string[], contenders: number) {
  const sides = builds.map((build) => new Side(build, hosts, contenders));
  for (const side of sides) await side.lock(WARM_UP);
  for (let round = 0; round < ROUNDS; round++)
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) await side.round();
  for (const side of sides) await side.close();
  return sides.map(({ costs }) => costs);
}

function rowOf(contenders: number, [old = [], young = []]: readonly (readonly Cost[])[]): string[] {
  const ratio = (of: (cost: Cost) => number) =>
    median(young.map((cost, n) => of(cost) / of(old[n]!))).toFixed(2);
  const micros = (costs: readonly Cost[]) => median(costs.map(({ cpu }) => cpu)).toFixed(0);
  return [`${contenders}`, micros(old), micros(young), ratio(({ cpu }) => cpu), ratio(({ time }) => time)];
}

async function main(): Promise<void> {
  const directories = process.argv.slice(2);
  if (directories.length !== 2) throw new RangeError("Expected two directories: OLD NEW");
  const imported = directories.map((each) => import(pathToFileURL(path.resolve(each, "leasehold.js")).href));
  const builds = (await Promise.all(imported)) as Build[];
  const etcd = await startEtcd();
  const rows = [
    ["contenders", "old, µs of CPU", "new, µs of CPU", "CPU, new over old", "time, new over old"],
  ];
  try {
    for (const contenders of CONTENDERS)
      rows.push(rowOf(contenders, await compare(builds, etcd.endpoints, contenders)));
  } finally {
    await etcd.stop();
  }
  console.log(markdownTable(rows).join("\n"));
}

await main();
