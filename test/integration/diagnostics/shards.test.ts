// What is published, logged and counted of shards that are taken, handed over, lost, stuck, and whose work fails.
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  type LogRecord,
  type Shard,
  ShardMovedError,
  shards,
  type ShardsOptions,
} from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { ShardMessage } from "../../../src/base/telemetry/messages.js";
import { abortOf } from "../../support/clients/session-client.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Messages } from "../../support/fixtures/messages.js";
import { MemorySdk } from "../../support/fixtures/otel.js";

let etcd: EtcdCluster;
const clusters: Cluster[] = [];
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(async () => {
  await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  await etcd.stop();
});

/** A member in a cluster of its own, and the records of its log. */
async function member(name: string, options: Partial<ShardsOptions>, work: (shard: Shard) => unknown) {
  const records: LogRecord[] = [];
  const cluster = connect({ hosts: etcd.endpoints, log: (record) => records.push(record) });
  clusters.push(cluster);
  const given = { count: 2, settleMs: 0, ttlSeconds: 30, label: "feeds", ...options };
  const group = await shards(cluster, name, given, work);
  return { cluster, group, warnings: () => records.filter(({ event }) => event.startsWith("shard.")) };
}

const messagesOf = (name: string) =>
  new Messages<ShardMessage>(CHANNELS.shard, (message) => message.name === name);
const isState =
  (state: ShardMessage["state"], more: Partial<ShardMessage> = {}) =>
  (message: ShardMessage) =>
    message.state === state && Object.entries(more).every(([k, v]) => message[k as keyof ShardMessage] === v);
const untilAborted = ({ signal }: Shard) => abortOf(signal);

test("a shard that is taken and handed over is published, with its fence and the time until its work had settled", async () => {
  const name = "diagnostics/moves";
  using events = messagesOf(name);
  const sdk = new MemorySdk();
  const instrumentation = sdk.instrument();
  const reasons: unknown[] = [];
  let settle = () => {};
  const settled = new Promise<void>((resolve) => (settle = resolve));
  const a = await member(name, { id: "a" }, async (shard) => {
    reasons.push(await untilAborted(shard));
    await settled;
  });
  await expect.poll(() => events.all).toHaveLength(2);
  const b = await member(name, { id: "b" }, untilAborted);
  const { shard } = await events.first(isState("moving"));
  expect(await sdk.by("leasehold.label", "leasehold.shards.owned")).toEqual({ feeds: 2 });
  settle();
  const next = await events.first(isState("owned", { hosts: b.cluster.hosts }));
  await events.first(isState("moved"));

  // The next owner may have the lock before the answer to the release is here.
  const all = events.all
    .filter((message) => message.shard === shard)
    .sort((x, y) => Number(x.fence - y.fence));
  const common = { name, label: "feeds", shard, drainMs: undefined, error: undefined };
  const [first] = all;
  expect(all).toEqual([
    { ...common, hosts: a.cluster.hosts, state: "owned", fence: first!.fence },
    { ...common, hosts: a.cluster.hosts, state: "moving", fence: first!.fence },
    {
      ...common,
      hosts: a.cluster.hosts,
      state: "moved",
      fence: first!.fence,
      drainMs: expect.any(Number) as number,
    },
    { ...common, hosts: b.cluster.hosts, state: "owned", fence: next.fence },
  ]);
  expect(all.slice(0, 3).every(({ hosts }) => hosts === a.cluster.hosts)).toBe(true);
  expect(next.fence).toBeGreaterThan(first!.fence);
  expect(JSON.parse(JSON.stringify(first))).toMatchObject({ state: "owned", fence: String(first!.fence) });
  expect(reasons).toEqual([expect.any(ShardMovedError)]);
  expect(await sdk.by("leasehold.label", "leasehold.shards.owned")).toEqual({ feeds: 2 });
  expect(await sdk.by("leasehold.outcome", "leasehold.shards.moves")).toEqual({ moved: 1, late: 0, lost: 0 });
  expect(await sdk.by("leasehold.label", "leasehold.shards.drain.duration")).toEqual({ feeds: 1 });
  expect(await sdk.by("leasehold.label", "leasehold.holds.active")).toEqual({ feeds: 2 });
  expect([...a.warnings(), ...b.warnings()]).toEqual([]);
  await Promise.all([a.group.close(), b.group.close()]);
  expect(await sdk.by("leasehold.label", "leasehold.shards.owned")).toEqual({ feeds: 0 });
  instrumentation.disable();
  await sdk.shutdown();
});

test("work that does not settle in time is published as stuck, logged once, and counted as late when it has", async () => {
  const name = "diagnostics/stuck";
  using events = messagesOf(name);
  const sdk = new MemorySdk();
  const instrumentation = sdk.instrument();
  let settle = () => {};
  const settled = new Promise<void>((resolve) => (settle = resolve));
  const a = await member(name, { id: "a", count: 1, drainMs: 1 }, () => settled);
  await events.first(isState("owned"));
  const closed = a.group.close();
  const stuck = await events.first(isState("stuck"));
  settle();
  await closed;

  const text = `the work on shard 0 of "${name}" has not settled 1 ms after its signal, and keeps the shard`;
  const warning = { level: "warn", event: "shard.stuck", name, message: text, durationMs: 1 };
  expect(a.warnings()).toEqual([{ ...warning, fence: String(stuck.fence) }]);
  expect(events.all.map(({ state }) => state)).toEqual(["owned", "moving", "stuck", "moved"]);
  expect(await sdk.by("leasehold.outcome", "leasehold.shards.moves")).toEqual({ moved: 0, late: 1, lost: 0 });
  instrumentation.disable();
  await sdk.shutdown();
});

test("a shard whose lock is lost, also while it moves, is published with the loss, and logged as the lost lock alone", async () => {
  const name = "diagnostics/lost";
  using events = messagesOf(name);
  let settle = () => {};
  const settled = new Promise<void>((resolve) => (settle = resolve));
  const keys = new Map<bigint, string>();
  const a = await member(name, { id: "a", count: 1 }, async ({ signal, fence, lock }) => {
    keys.set(fence, lock.key);
    await abortOf(signal);
    if (keys.size > 1) await settled;
  });
  const first = await events.first(isState("owned"));
  await expect.poll(() => keys.size).toBe(1);
  await etcd.etcdctl(["del", keys.get(first.fence)!]);
  const lost = await events.first(isState("lost"));
  const second = await events.first((message) => isState("owned")(message) && message.fence > first.fence);
  await expect.poll(() => keys.size).toBe(2);
  const closed = a.group.close();
  await events.first(isState("moving"));
  await etcd.etcdctl(["del", keys.get(second.fence)!]);
  settle();
  await closed;

  expect(lost).toMatchObject({
    fence: first.fence,
    drainMs: undefined,
    error: { code: "LOCK_LOST", loss: "deleted" },
  });
  expect(events.all.map(({ state, fence }) => [state, fence])).toEqual([
    ["owned", first.fence],
    ["lost", first.fence],
    ["owned", second.fence],
    ["moving", second.fence],
    ["lost", second.fence],
  ]);
  expect(events.all.at(-1)).toMatchObject({
    error: { code: "LOCK_LOST" },
    drainMs: expect.any(Number) as number,
  });
  expect(a.warnings()).toEqual([]);
});

test("work that fails again and again is published with what it has thrown, and logged", async () => {
  const name = "diagnostics/fails";
  using events = messagesOf(name);
  const a = await member(name, { id: "a", count: 1, onRetry: () => undefined }, () => {
    throw new TypeError("no \u001b[31m table");
  });
  const failed = await events.first(isState("failed"));
  await expect.poll(a.warnings).toHaveLength(1);
  await a.group.close();

  expect(failed).toMatchObject({ shard: 0, error: { message: "no \u001b[31m table" } });
  expect(a.warnings()).toEqual([
    {
      ...{ level: "warn", event: "shard.failed", name, fence: String(failed.fence), error: "TypeError" },
      message: `the work on shard 0 of "${name}" has failed again and again (no \\u001b[31m table); it is left to other members for a minute`,
    },
  ]);
  expect(events.all.map(({ state }) => state)).toEqual(["owned", "failed", "moving", "moved"]);
});
