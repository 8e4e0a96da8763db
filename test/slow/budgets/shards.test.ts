// What shards cost beside plain locks, as ratios in one run: the gap between two owners, the requests of a move and of failures, heap and CPU.
// The figures are printed.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, type Lock, Mutex, shards } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";
import { meter } from "../../support/fixtures/spent.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/shards-program.js", import.meta.url));
const PATIENCE = { timeout: 60_000, interval: 5 };
const TTL_SECONDS = 30;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd.stop());

const cluster = () => connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

const part = (sorted: readonly number[], share: number) =>
  sorted[Math.floor((sorted.length - 1) * share)] ?? NaN;
const parts = (values: readonly number[]) => {
  const sorted = values.toSorted((a, b) => a - b);
  return { p50: part(sorted, 0.5), p99: part(sorted, 0.99), max: part(sorted, 1) };
};
const text = ({ p50, p99, max }: ReturnType<typeof parts>) =>
  `p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)}, max ${max.toFixed(1)} ms`;

/** Milliseconds from each release to the grant of the next one, of two clients that take turns. */
async function handOvers(count: number): Promise<number[]> {
  const clusters = [cluster(), cluster()];
  const mutexes = clusters.map((each) => new Mutex(each, "plain"));
  const gaps: number[] = [];
  let held = (await mutexes[0]?.lock()) as Lock;
  for (let n = 1; n <= count; n++) {
    let isWaiting: () => void = () => undefined;
    const waits = new Promise<void>((resolve) => (isWaiting = resolve));
    const next = mutexes[n % 2]?.lock() as Promise<Lock>;
    void held.waiters().next().then(isWaiting);
    await waits;
    const released = performance.now();
    void held.release();
    held = await next;
    gaps.push(performance.now() - released);
  }
  await held.release();
  await Promise.all(clusters.map((each) => each.close()));
  return gaps;
}

interface Work {
  readonly id: number;
  readonly begun: string;
  readonly ended: string;
}
const COUNT = 256;
const TURNS = 6;

/** A process that is a member, from the time on at which it owns `until` shards. It takes its shards from others as a fresh process does. */
async function startMember(id: string, until: number): Promise<() => Promise<readonly Work[]>> {
  const all = { hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS }, group: "gaps", count: COUNT };
  const args = [PROGRAM, JSON.stringify({ ...all, until, records: true }), id];
  const child = owned(spawn(process.execPath, args, { stdio: ["ignore", "pipe", 2] }));
  const said = new Said(child);
  expect(await said.next()).toBe("all");
  return async () => {
    child.kill("SIGTERM");
    return JSON.parse(await said.next()) as readonly Work[];
  };
}

test("the gap between two owners is about that of a plain hand-over, and a move of 128 shards is few requests", async () => {
  const plain = parts(await handOvers(200));
  const leaveLast = await startMember("stays", COUNT);
  const works: Work[] = [];
  const spent = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const requests = await Promise.all(etcd.members.map((member) => meter(member)));
    const leave = await startMember("comes", COUNT / 2);
    const sums = await Promise.all(requests.map((each) => each.read()));
    spent.push(sums.reduce((sum, { Txn = 0 }) => sum + Txn, 0));
    works.push(...(await leave()));
  }
  works.push(...(await leaveLast()));

  const inOrder = works.toSorted((a, b) => a.id - b.id || (BigInt(a.begun) < BigInt(b.begun) ? -1 : 1));
  const gaps = inOrder.flatMap(({ id, ended }, n) => {
    const next = inOrder[n + 1];
    return next?.id === id ? [Number(BigInt(next.begun) - BigInt(ended)) / 1e6] : [];
  });
  const moved = parts(gaps);
  console.log(`plain hand-over: ${text(plain)}; gap of a shard: ${text(moved)} (${gaps.length} moves)`);
  console.log(`requests of a move of ${COUNT / 2} shards: ${spent.join(", ")}`);
  expect(gaps.length).toBe(COUNT * TURNS);
  expect(Math.min(...gaps)).toBeGreaterThan(0);
  expect(moved.p50 / plain.p50).toBeLessThan(5);
  expect(moved.p99 / plain.p99).toBeLessThan(8);
  // One for each eight that are released together, and a few for all that join: on a slow machine, not all of the eight are ready together.
  expect(Math.min(...spent)).toBeLessThanOrEqual(COUNT / 2 / 8 + 10);
}, 120_000);

/** A member tells the group of all that has failed within so long by one put: the `TOGETHER_MS` of the group. */
const TOGETHER_MS = 100;

test("a member puts its key ten times a second at most, however many shards fail there, and others take all of them", async () => {
  const [MANY, group] = [600, "failing"];
  await using here = cluster();
  await using there = cluster();
  const failed = new Set<number>();
  const onFailed = (shard: number): void => void failed.add(shard);
  const settings = { count: MANY, settleMs: 0, ttlSeconds: TTL_SECONDS };
  const listeners = { onFailed, onRetry: () => undefined };
  const work = () => Promise.reject(new Error("broken here"));
  const a = await shards(here, group, { ...settings, ...listeners, id: "a" }, work);
  const begun = performance.now();
  const [key] = await placesOf(etcd.member, `${group}/members`);
  const puts = async () => {
    const { stdout } = await etcd.etcdctl(["get", key?.key ?? "", "--write-out=json"]);
    const { kvs } = JSON.parse(stdout) as { readonly kvs: readonly [{ readonly version: number }] };
    return kvs[0].version;
  };
  await expect.poll(() => failed.size, PATIENCE).toBe(MANY);
  const [count, elapsedMs] = [await puts(), performance.now() - begun];
  console.log(`${MANY} shards fail within ${Math.round(elapsedMs)} ms: ${count} puts of the member's key`);
  expect(count).toBeLessThanOrEqual(2 + elapsedMs / TOGETHER_MS);

  const b = await shards(there, group, { ...settings, id: "b" }, ({ signal }) => untilAborted(signal));
  await expect.poll(() => b.owned.length, PATIENCE).toBe(MANY);
  await Promise.all([a.close(), b.close()]);
}, 120_000);

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Heap per lock, in KiB, and the share of a core in a span without events, in percent. */
async function cost(count: number, take: (cluster: Cluster) => Promise<unknown>) {
  const one = cluster();
  await one.session();
  collect();
  const before = process.memoryUsage().heapUsed;
  const kept = await take(one);
  await new Promise((resolve) => setTimeout(resolve, 3000));
  collect();
  const heap = (process.memoryUsage().heapUsed - before) / count / 1024;
  const cpu = process.cpuUsage();
  const since = performance.now();
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  const { user, system } = process.cpuUsage(cpu);
  const percent = (user + system) / 10 / (performance.now() - since);
  await one.close({ drainMs: 0 });
  return { heap, percent, kept };
}

test("1,024 shards in one process cost what is stated beside 1,024 locks", async () => {
  const COUNT = 1024;
  const asLocks = (one: Cluster) =>
    Promise.all(Array.from({ length: COUNT }, (_, n) => new Mutex(one, `plain/${n}`).lock()));
  const asShards = async (one: Cluster) => {
    const options = { count: COUNT, id: "one", settleMs: 0, ttlSeconds: TTL_SECONDS };
    const feeds = await shards(one, "many", options, ({ signal }) => untilAborted(signal));
    await expect.poll(() => feeds.owned.length, PATIENCE).toBe(COUNT);
    return feeds;
  };
  // What the first of each leaves in memory, such as compiled code, is not theirs.
  for (const take of [asLocks, asShards]) {
    const one = cluster();
    await take(one);
    await one.close({ drainMs: 0 });
  }
  const locks = await cost(COUNT, asLocks);
  const own = await cost(COUNT, asShards);
  const of = ({ heap, percent }: typeof own) =>
    `${heap.toFixed(1)} KiB each, ${percent.toFixed(2)} % of a core`;
  console.log(`1,024 locks: ${of(locks)}; 1,024 shards: ${of(own)}`);
  // Beside its lock, a shard has its work, the signal of that, and its place in the view.
  expect(own.heap - locks.heap).toBeLessThan(16);
}, 180_000);
