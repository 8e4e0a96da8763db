// `npm run bench:compare -- OLD NEW`: two builds (directories like dist/) in one process on one etcd, round after round in
// turns: processor time and time for each lock and release, of one name, alone and with contenders, and of ten names at once by
// `lockAll`. What else the machine does falls on both alike, so their ratio shows even small changes.
import path from "node:path";
import { pathToFileURL } from "node:url";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { markdownTable } from "../test/support/fixtures/markdown.js";
import { median } from "./report/statistics.js";

/** What is locked, by how many clients. */
interface Case {
  readonly contenders: number;
  readonly names: number;
}

const CASES: readonly Case[] = [
  { contenders: 1, names: 1 },
  { contenders: 2, names: 1 },
  { contenders: 10, names: 1 },
  { contenders: 1, names: 10 },
  { contenders: 2, names: 10 },
];
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

/** One build with its contenders for one name, or for several at once. */
class Side {
  readonly costs: Cost[] = [];
  readonly #clusters: readonly ReturnType<Build["connect"]>[];
  readonly #locks: readonly (() => Promise<{ release(): Promise<void> }>)[];

  constructor({ connect, Mutex, lockAll }: Build, hosts: readonly string[], { contenders, names }: Case) {
    this.#clusters = Array.from({ length: contenders }, () => connect({ hosts: [...hosts] }));
    const name = `compare/${process.hrtime.bigint()}`;
    const all = Array.from({ length: names }, (_, n) => `${name}/${n}`);
    this.#locks = this.#clusters.map((cluster) => {
      const mutex = new Mutex(cluster, name);
      return () => (names > 1 ? lockAll(cluster, all) : mutex.lock());
    });
  }

  async lock(times: number): Promise<void> {
    let left = times;
    const contend = async (lock: () => Promise<{ release(): Promise<void> }>): Promise<void> => {
      while (left-- > 0) await (await lock()).release();
    };
    await Promise.all(this.#locks.map(contend));
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

async function compare(builds: readonly Build[], hosts: readonly string[], which: Case) {
  const sides = builds.map((build) => new Side(build, hosts, which));
  for (const side of sides) await side.lock(WARM_UP);
  for (let round = 0; round < ROUNDS; round++)
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) await side.round();
  for (const side of sides) await side.close();
  return sides.map(({ costs }) => costs);
}

function rowOf({ contenders, names }: Case, [old = [], young = []]: readonly (readonly Cost[])[]): string[] {
  const ratio = (of: (cost: Cost) => number) =>
    median(young.map((cost, n) => of(cost) / of(old[n]!))).toFixed(2);
  const micros = (costs: readonly Cost[]) => median(costs.map(({ cpu }) => cpu)).toFixed(0);
  return [
    `${contenders}`,
    `${names}`,
    micros(old),
    micros(young),
    ratio(({ cpu }) => cpu),
    ratio(({ time }) => time),
  ];
}

async function main(): Promise<void> {
  const directories = process.argv.slice(2);
  if (directories.length !== 2) throw new RangeError("Expected two directories: OLD NEW");
  const imported = directories.map((each) => import(pathToFileURL(path.resolve(each, "leasehold.js")).href));
  const builds = (await Promise.all(imported)) as Build[];
  const etcd = await startEtcd();
  const rows = [
    ["contenders", "names", "old, µs of CPU", "new, µs of CPU", "CPU, new over old", "time, new over old"],
  ];
  try {
    for (const each of CASES) rows.push(rowOf(each, await compare(builds, etcd.endpoints, each)));
  } finally {
    await etcd.stop();
  }
  console.log(markdownTable(rows).join("\n"));
}

await main();
