// Shards on a real etcd. Who owns what is judged by the queues in etcd, and by what the works record, never by what a member says of itself.
import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import {
  type Cluster,
  connect,
  LockLostError,
  Session,
  type Shard,
  ShardCountError,
  ShardMovedError,
  type ShardOwners,
  shards,
  type Shards,
  type ShardsOptions,
  watchShards,
} from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { meter } from "../../support/fixtures/spent.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

const COUNT = 24;
const PATIENCE = { timeout: 20_000 };

interface Run {
  readonly member: string;
  readonly shard: Shard;
  readonly fence: bigint;
  ended: boolean;
}

/** Members of one group, each with a cluster of its own, and what their works record. */
class Group implements AsyncDisposable {
  readonly runs: Run[] = [];
  /** Shards on which two works have run at a time. */
  readonly overlaps: number[] = [];
  readonly #clusters: Cluster[] = [];

  constructor(
    readonly name: string,
    readonly options: Partial<ShardsOptions> = {},
  ) {}

  async start(
    id: string,
    more: Partial<ShardsOptions> = {},
    work?: (shard: Shard) => Promise<unknown>,
  ): Promise<Shards> {
    const cluster = connect({ hosts: etcd.endpoints });
    this.#clusters.push(cluster);
    const options = {
      count: COUNT,
      id,
      value: `http://${id}`,
      settleMs: 0,
      ttlSeconds: 10,
      ...this.options,
      ...more,
    };
    return shards(cluster, this.name, options, async (shard) => {
      const run: Run = { member: id, shard, fence: shard.fence, ended: false };
      if (this.running(shard.id).length > 0) this.overlaps.push(shard.id);
      this.runs.push(run);
      try {
        await (work ? work(shard) : untilAborted(shard.signal));
      } finally {
        run.ended = true;
      }
    });
  }

  cluster(): Cluster {
    const cluster = connect({ hosts: etcd.endpoints });
    this.#clusters.push(cluster);
    return cluster;
  }

  running(shard: number): Run[] {
    return this.runs.filter((run) => run.shard.id === shard && !run.ended);
  }

  /** How many shards each member works on. */
  loads(): Record<string, number> {
    const loads: Record<string, number> = {};
    for (const { member, ended } of this.runs) if (!ended) loads[member] = (loads[member] ?? 0) + 1;
    return loads;
  }

  /** Waits until each member works on so many, and etcd has one entry in each queue. */
  async balanced(loads: Record<string, number>): Promise<void> {
    await expect.poll(() => this.loads(), PATIENCE).toEqual(loads);
    const count = Object.values(loads).reduce((sum, each) => sum + each, 0);
    await expect.poll(() => this.entries(), PATIENCE).toBe(count);
  }

  async entries(): Promise<number> {
    return (await placesOf(etcd.member, `${this.name}/shard`)).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  }
}

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

test("shards are shared out, move to a new member while it stands in the queue, and back when it leaves", async () => {
  await using group = new Group("feeds");
  const a = await group.start("a");
  await group.balanced({ a: 24 });
  const b = await group.start("b");
  await group.balanced({ a: 12, b: 12 });
  const c = await group.start("c");
  await group.balanced({ a: 8, b: 8, c: 8 });

  await b.close();
  await group.balanced({ a: 12, c: 12 });
  expect(a.owned).toHaveLength(12);
  expect(group.overlaps).toEqual([]);
  // Each run of a shard has a higher fence than the one before it.
  for (let shard = 0; shard < COUNT; shard++) {
    const fences = group.runs.filter((run) => run.shard.id === shard).map(({ fence }) => fence);
    expect(fences).toEqual([...new Set(fences)].sort((x, y) => (x < y ? -1 : 1)));
  }
  await Promise.all([a.close(), c.close()]);
  expect(await group.entries()).toBe(0);
});

/** What etcd has of the group's members. */
const memberKeys = (name: string) => placesOf(etcd.member, `${name}/members`);

/** Work that settles when it is told to. */
class HeldWork {
  readonly settle: (() => void)[] = [];
  readonly reasons: unknown[] = [];

  run = (shard: Shard): Promise<void> =>
    new Promise((resolve) => {
      shard.signal.addEventListener("abort", () => this.reasons.push(shard.signal.reason), { once: true });
      this.settle.push(resolve);
    });
}

test("a shard moves when its work has settled, however long that takes: its lock stays until then", async () => {
  await using group = new Group("stuck", { count: 2 });
  const held = new HeldWork();
  const stuck: number[] = [];
  const a = await group.start("a", { drainMs: 50, onStuck: (shard) => void stuck.push(shard) }, held.run);
  await group.balanced({ a: 2 });
  const b = await group.start("b");

  await expect.poll(() => stuck, PATIENCE).toHaveLength(1);
  const [moving] = stuck as [number];
  expect(held.reasons).toEqual([expect.any(ShardMovedError)]);
  expect(held.reasons[0]).toMatchObject({ group: "stuck", shard: moving, to: "b" });
  // The next owner stands behind the lock.
  const places = await placesOf(etcd.member, `stuck/shard/${moving}`);
  expect(places).toHaveLength(2);
  expect(places[0]?.revision).toBe(group.running(moving)[0]?.fence);
  expect(group.running(moving).map(({ member }) => member)).toEqual(["a"]);
  expect(a.owned).not.toContain(moving);

  for (const settle of held.settle) settle();
  await expect.poll(() => group.running(moving).map(({ member }) => member), PATIENCE).toEqual(["b"]);
  expect(b.owned).toEqual([moving]);
  expect(group.overlaps).toEqual([]);
});

test("work that has returned keeps its shard, and does not run again", async () => {
  await using group = new Group("returned", { count: 2 });
  const ran: number[] = [];
  const cluster = group.cluster();
  const a = await shards(
    cluster,
    "returned",
    { count: 2, id: "a", settleMs: 0 },
    (shard) => void ran.push(shard.id),
  );
  await expect.poll(() => a.owned, PATIENCE).toHaveLength(2);
  const b = await group.start("b");
  await expect.poll(() => b.owned, PATIENCE).toHaveLength(1);
  expect(a.owned).toHaveLength(1);
  expect([...ran].sort()).toEqual([0, 1]);
});

test("what fails on one member is tried on another, and those that have more than their share for it give one up", async () => {
  await using group = new Group("failing", { count: 4 });
  const failed: unknown[] = [];
  const broken = new Error("broken here");
  const work = (shard: Shard) => {
    if (shard.id === 2) throw broken;
    return untilAborted(shard.signal);
  };
  const retried: unknown[] = [];
  const onRetry = (error: unknown, _delayMs: number, shard?: number) => void retried.push([error, shard]);
  const a = await group.start("a", { onFailed: (...told) => void failed.push(told), onRetry }, work);
  await expect.poll(() => failed, { timeout: 30_000 }).toEqual([[2, broken]]);
  expect(retried).toEqual([
    [broken, 2],
    [broken, 2],
  ]);
  // Nobody else is there: it stays locked, so that nobody takes what fails in a circle.
  expect(a.owned).toContain(2);

  await group.start("b");
  await expect.poll(() => group.running(2).map(({ member }) => member), PATIENCE).toEqual(["b"]);
  await group.balanced({ a: 2, b: 2 });
}, 60_000);

test("a listener that throws changes nothing: the error is the process's, and another member gets what fails", async () => {
  const thrown: unknown[] = [];
  const others = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => void thrown.push(error));
  onTestFinished(() => {
    process.removeAllListeners("uncaughtException");
    for (const each of others) process.on("uncaughtException", each);
  });
  await using group = new Group("throwing", { count: 1 });
  const bad = new Error("a bad listener");
  const listener = () => {
    throw bad;
  };
  const work = () => Promise.reject(new Error("broken here"));
  const a = await group.start("a", { onFailed: listener, onRetry: listener }, work);
  await expect.poll(() => a.owned, PATIENCE).toEqual([0]);
  const b = await group.start("b");
  await expect.poll(() => b.owned, PATIENCE).toEqual([0]);
  // Two pauses, and the end.
  expect(thrown).toEqual([bad, bad, bad]);
  expect(group.runs.filter(({ member }) => member === "a")).toHaveLength(3);
}, 60_000);

test("a member whose lease is gone is told at once, and joins again; its shards have other owners meanwhile", async () => {
  await using group = new Group("revoked");
  const a = await group.start("a");
  await group.balanced({ a: 24 });
  await group.start("b");
  await group.balanced({ a: 12, b: 12 });
  const lost = group.runs.filter(({ member, ended }) => member === "a" && !ended);
  const leaseId = (await memberKeys("revoked"))[0]?.leaseId ?? 0n;

  await etcd.member.gateway("/v3/lease/revoke", { ID: leaseId.toString() });
  await expect.poll(() => lost.every(({ ended }) => ended), PATIENCE).toBe(true);
  for (const { shard } of lost) expect(shard.signal.reason).toBeInstanceOf(LockLostError);
  await group.balanced({ a: 12, b: 12 });
  const keys = await memberKeys("revoked");
  expect(keys).toHaveLength(2);
  expect(keys.map((key) => key.leaseId)).not.toContain(leaseId);
  // They were b's in between, which is what a home is for.
  expect(new Set(a.owned)).toEqual(new Set(lost.map(({ shard }) => shard.id)));
});

test("of the works that begin together, none does when the one before it has used up the lease", async () => {
  await using group = new Group("blocked", { count: 8, ttlSeconds: 2 });
  const drain = new AbortController();
  await group.start("a", {}, ({ signal }) => untilAborted(drain.signal.aborted ? signal : drain.signal));
  await group.balanced({ a: 8 });
  const leaseId = (await memberKeys("blocked"))[0]?.leaseId ?? 0n;
  const late: number[] = [];
  let begun = 0;
  await group.start("b", {}, async ({ id, signal, lock }) => {
    if (signal.aborted || !lock.held) late.push(id);
    if (begun++ === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500);
    if (!signal.aborted) await untilAborted(signal);
  });
  await expect.poll(() => group.entries(), PATIENCE).toBe(12);

  // This process stands still before it has read the answer.
  await Promise.allSettled([etcd.member.gateway("/v3/lease/revoke", { ID: leaseId.toString() })]);
  drain.abort();
  await expect.poll(() => begun, PATIENCE).toBeGreaterThanOrEqual(5);
  expect(late).toEqual([]);
}, 60_000);

test("an entry of its own, from a request that came late, is no next owner for a member", async () => {
  const name = "late";
  await using group = new Group(name, { count: 2 });
  const work = new HeldWork();
  await group.start("a", {}, work.run);
  await group.balanced({ a: 2 });
  for (const { key, leaseId } of await placesOf(etcd.member, `${name}/shard`))
    await etcd.etcdctl([
      "put",
      `--lease=${leaseId.toString(16)}`,
      `${key}-9`,
      '{"owner":"a","since":"2030-01-01T00:00:00.000Z","id":"late"}',
    ]);
  await group.start("b");
  await expect.poll(() => work.reasons, PATIENCE).toHaveLength(1);
  expect(work.reasons[0]).toMatchObject({ to: "b" });
  for (const settle of work.settle) settle();
});

test("keys that others have deleted are put again", async () => {
  await using group = new Group("deleted", { count: 4 });
  const a = await group.start("a");
  await group.balanced({ a: 4 });
  const [member] = await memberKeys("deleted");
  const [lock] = await placesOf(etcd.member, "deleted/shard/1");
  if (!member || !lock) throw new Error("no keys");
  const remove = (key: string) =>
    etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(key).toString("base64") });

  await remove(lock.key);
  await expect.poll(() => group.running(1)[0]?.fence, PATIENCE).toBeGreaterThan(lock.revision);
  const before = group.runs.find(({ fence, shard }) => shard.id === 1 && fence === lock.revision);
  expect(before?.shard.signal.reason).toMatchObject({
    loss: "deleted",
  });
  await remove(member.key);
  await expect.poll(() => memberKeys("deleted"), PATIENCE).toHaveLength(1);
  await group.balanced({ a: 4 });
  expect(a.owned).toHaveLength(4);
});

test("a member whose key says what it has said before tells the group anew", async () => {
  const name = "late/key";
  await using group = new Group(name, { count: 4 });
  await group.start("a");
  await group.start("b");
  await group.balanced({ a: 2, b: 2 });
  const [member] = await memberKeys(name);
  const { key = "", leaseId = 0n } = member ?? {};
  const value = async () => (await etcd.etcdctl(["get", key, "--print-value-only"])).stdout.trim();
  const said = await value();
  const before = said.replace('"active"', '"joining"');
  expect(before).not.toBe(said);

  // As the put of its join does that comes late, when somebody has deleted the key.
  await etcd.etcdctl(["put", `--lease=${leaseId.toString(16)}`, key, before]);

  await expect.poll(value, PATIENCE).toContain('"active"');
  await expect.poll(() => group.loads(), PATIENCE).toEqual({ a: 2, b: 2 });
});

test("a rolling restart of all members under their own names moves each shard at most twice, and never has two owners", async () => {
  await using group = new Group("rolling", { count: 32 });
  const ids = ["a", "b", "c", "d"];
  const each = new Map<string, Shards>();
  for (const id of ids) each.set(id, await group.start(id));
  await group.balanced({ a: 8, b: 8, c: 8, d: 8 });
  const before = group.runs.length;
  const owners = Array.from({ length: 32 }, (_, shard) => group.running(shard)[0]?.member);
  for (const id of ids) {
    await each.get(id)?.close();
    await group.start(id);
    await group.balanced({ a: 8, b: 8, c: 8, d: 8 });
  }
  expect(Array.from({ length: 32 }, (_, shard) => group.running(shard)[0]?.member)).toEqual(owners);
  const moves = group.runs.slice(before).map(({ shard }) => shard.id);
  for (let shard = 0; shard < 32; shard++) expect(moves.filter((id) => id === shard)).toHaveLength(2);
  expect(group.overlaps).toEqual([]);
}, 60_000);

test("a member that leaves while it still waits for others does not wait for what they should keep", async () => {
  await using group = new Group("waiting", { count: 4, drainMs: 30_000 });
  const settle = new AbortController();
  const work = ({ signal }: Shard) => untilAborted(settle.signal.aborted ? signal : settle.signal);
  const a = await group.start("a", {}, work);
  await group.balanced({ a: 4 });
  const b = await group.start("b");
  // The one owner has been told to stop, and goes on.
  await expect.poll(() => a.owned, PATIENCE).toHaveLength(2);
  await expect.poll(() => group.entries(), PATIENCE).toBe(6);
  const begun = performance.now();
  await b.close();
  expect(performance.now() - begun).toBeLessThan(5000);
  expect(await group.entries()).toBe(4);

  settle.abort();
  await expect.poll(() => a.owned, PATIENCE).toHaveLength(4);
  expect(group.overlaps).toEqual([]);
});

test("a member waits no longer for a shard that the one before it should keep", async () => {
  await using group = new Group("behind", { count: 12 });
  const feeds = await Promise.all(["a", "b", "c"].map((id) => group.start(id)));
  await group.balanced({ a: 4, b: 4, c: 4 });
  for (const { key } of await memberKeys("behind")) await etcd.etcdctl(["del", key]);
  await expect.poll(() => memberKeys("behind"), PATIENCE).toHaveLength(3);
  // Whoever was there first has joined the queues of the others.
  await expect.poll(() => group.entries(), PATIENCE).toBe(12);
  await Promise.all(feeds.map((each) => each.close()));
});

test("a new member takes nothing before it has settled, and members that start together share at once", async () => {
  await using group = new Group("settling", { count: 8, settleMs: 300 });
  await Promise.all(["a", "b"].map((id) => group.start(id)));
  await group.balanced({ a: 4, b: 4 });
  // Nothing has moved.
  expect(group.runs).toHaveLength(8);
});

test("another number of shards is refused, unless it names the old one: then it takes over when the last old member has left", async () => {
  await using group = new Group("counts", { count: 4 });
  const a = await group.start("a");
  await group.balanced({ a: 4 });
  const refused = group.start("b", { count: 8 });
  await expect(refused).rejects.toThrow(ShardCountError);
  await expect(refused).rejects.toMatchObject({ code: "SHARD_COUNT", count: 8, found: 4 });
  await expect.poll(() => memberKeys("counts"), PATIENCE).toHaveLength(1);

  const c = await group.start("c", { count: 8, migrate: 4 });
  expect(c.owned).toEqual([]);
  expect(a.owned).toHaveLength(4);
  // A shard of the old number has other keys.
  expect(c.owner(1)).toBeUndefined();
  expect(c.ownerOf("user 17")).toBeUndefined();
  expect(a.ownerOf("user 17")?.id).toBe("a");
  await a.close();
  await group.balanced({ c: 8 });
  await expect.poll(() => c.ownerOf("user 17")?.id, PATIENCE).toBe("c");
  await expect(group.start("d", { count: 4 })).rejects.toThrow(ShardCountError);
});

test("two numbers of shards are never at work together: who comes back with the old one, after one with the new one, is refused", async () => {
  await using group = new Group("counts/late", { count: 4 });
  const a = await group.start("a");
  const b = await group.start("b", { count: 8, migrate: 4 });
  const late = group.start("c");
  await expect(late).rejects.toThrow(ShardCountError);
  await expect(late).rejects.toMatchObject({ count: 4, found: 8 });
  // One that goes back to the old number waits for the last one with the new number.
  const back = await group.start("d", { migrate: 8 });
  await group.balanced({ a: 4 });
  await expect.poll(() => a.members, PATIENCE).toHaveLength(3);

  await a.close();
  await group.balanced({ b: 8 });
  expect(group.runs.filter(({ member }) => member === "d")).toEqual([]);
  await b.close();
  await group.balanced({ d: 4 });
  expect(back.owned).toHaveLength(4);
});

test("members of other versions: the highest rule that all of them know is used, and nothing moves without one", async () => {
  await using group = new Group("versions", { count: 8 });
  const cluster = group.cluster();
  const other = await Session.open(cluster, { ttlSeconds: 20 });
  const put = (rule: number) =>
    etcd.member.gateway("/v3/kv/put", {
      key: Buffer.from(`versions/members/${other.leaseId.toString(16)}`).toString("base64"),
      value: Buffer.from(
        JSON.stringify({
          ...{ member: "other", value: "", owner: "o", capacity: 1, state: "active" },
          shards: { count: 8, rule, declines: [] },
        }),
      ).toString("base64"),
      lease: other.leaseId.toString(),
    });
  await put(7);
  const a = await group.start("a");
  // The other half belongs to the other one, by the rule that both know.
  await group.balanced({ a: 4 });
  await put(0);
  await group.start("b");
  await expect.poll(() => memberKeys("versions"), PATIENCE).toHaveLength(3);
  expect(a.owned).toHaveLength(4);
  await put(1);
  // The other one has a third, too, which may be the larger one.
  const isThird = (load = 0) => load === 2 || load === 3;
  await expect.poll(() => ["a", "b"].every((id) => isThird(group.loads()[id])), PATIENCE).toBe(true);
});

test("those that own nothing see the owners, with the address and the fence of each", async () => {
  await using group = new Group("routed");
  await group.start("a");
  await group.start("b");
  await group.balanced({ a: 12, b: 12 });
  await using map = await watchShards(group.cluster(), "routed");
  expect(map.count).toBe(COUNT);
  expect(map.members.map(({ id, value }) => [id, value])).toEqual([
    ["a", "http://a"],
    ["b", "http://b"],
  ]);
  for (let shard = 0; shard < COUNT; shard++) {
    const [first] = await placesOf(etcd.member, `routed/shard/${shard}`);
    expect(map.owner(shard)).toMatchObject({ shard, fence: first?.revision, leaseId: first?.leaseId });
    expect(map.owner(shard)?.value).toBe(`http://${group.running(shard)[0]?.member}`);
  }
  expect(map.ownerOf("user 17")).toEqual(map.owner(map.shardOf("user 17")));
  expect(() => map.owner(COUNT)).toThrow(RangeError);

  const feed = map.owners();
  const states = async () => {
    const { value } = (await feed.next()) as IteratorYieldResult<ShardOwners>;
    return value.owners.filter((owner) => owner?.id === "c").length;
  };
  expect(await states()).toBe(0);
  await group.start("c");
  while ((await states()) !== 8);
  await feed.return?.();
  const stop = new AbortController();
  const stopped = map.owners({ signal: stop.signal });
  const none = stopped.next();
  stop.abort(new Error("enough"));
  await expect(none).rejects.toThrow("enough");
  // Its first state was under way then.
  expect(await stopped.next()).toEqual({ done: true, value: undefined });

  const ends = map.owners();
  await ends.next();
  const last = ends.next();
  await map.close();
  await expect(last).rejects.toMatchObject({ code: "SESSION_CLOSED" });
  // Nobody would tell one that begins now of a change, or of an end.
  await expect(map.owners().next()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
});

test("the shard of a key is the same in each version and language", async () => {
  await using group = new Group("hash", { count: 256 });
  const map = await group.start("a", { capacity: 0 });
  // printf 'user 17' | sha256sum: the first two hexadecimal digits are the shard of 256.
  const first = (key: string) => createHash("sha256").update(key).digest()[0];
  for (const key of ["user 17", "", "ä", "a/b"]) expect(map.shardOf(key)).toBe(first(key));
  expect(map.shardOf(Buffer.from("ä"))).toBe(map.shardOf("ä"));
  expect(() => map.shardOf(1 as never)).toThrow(TypeError);
});

test.each([
  ["its own close", (it: { feeds: Shards }) => it.feeds.close()],
  ["its signal", (it: { stop: AbortController }) => it.stop.abort()],
  ["the close of its cluster", (it: { cluster: Cluster }) => it.cluster.close()],
])("%s ends the work of a member that is alone, and leaves no key", async (how, end) => {
  const name = `ends/${how}`;
  const cluster = connect({ hosts: etcd.endpoints });
  const stop = new AbortController();
  const running = new Set<number>();
  const work = async ({ id, signal }: Shard) => {
    running.add(id);
    await untilAborted(signal);
    running.delete(id);
  };
  const feeds = await shards(cluster, name, { count: 4, settleMs: 0, signal: stop.signal }, work);
  await expect.poll(() => running.size, PATIENCE).toBe(4);
  void end({ feeds, stop, cluster });
  await feeds.close();
  expect(running.size).toBe(0);
  await expect.poll(() => placesOf(etcd.member, name), PATIENCE).toEqual([]);
  await cluster.close();
});

test("a cluster that closes hands its shards over, too", async () => {
  await using group = new Group("closing", { count: 8 });
  const cluster = group.cluster();
  const running = new Set<number>();
  const work = async ({ id, signal }: Shard) => {
    running.add(id);
    await untilAborted(signal);
    // Its next owner stands in the queue by then.
    expect(await placesOf(etcd.member, `closing/shard/${id}`)).toHaveLength(2);
    running.delete(id);
  };
  await shards(cluster, "closing", { count: 8, id: "a", settleMs: 0 }, work);
  await group.start("b");
  await expect.poll(() => running.size, PATIENCE).toBe(4);
  await cluster.close();
  expect(running.size).toBe(0);
  await group.balanced({ b: 8 });
});

test("a copy of a member's key on its lease is no further member, and nobody writes because of it", async () => {
  await using group = new Group("copied", { count: 8 });
  const a = await group.start("a");
  await group.balanced({ a: 8 });
  const gateway = (path: string, body: object) => etcd.member.gateway(path, body);
  const [member] = a.members;
  const range = { key: Buffer.from(member!.key).toString("base64") };
  const { kvs } = (await gateway("/v3/kv/range", range)) as { kvs: { value: string; lease: string }[] };
  const key = Buffer.from("copied/members/x").toString("base64");
  await gateway("/v3/kv/put", { key, value: kvs[0]!.value, lease: kvs[0]!.lease });
  const counted = await meter(etcd.member);

  await group.start("b");
  await group.balanced({ a: 4, b: 4 });

  const { revisions = 0 } = await counted.read();
  // The key of the new member, four that join, and four that leave.
  expect(revisions).toBeLessThan(20);
  expect(a.members.map(({ id }) => id)).toEqual(["a", "b"]);
});

test.each([
  [{ count: 0 }, /count to be a whole number from 1 to 4096, got 0/],
  [{}, /count to be a whole number/],
  [{ count: 4, capacity: 1.5 }, /capacity to be a whole number from 0 to 1000/],
  [{ count: 4, id: "" }, /id to be a string of 1 to 256 bytes/],
  [{ count: 4, value: "x".repeat(4097) }, /value to be a well-formed string of at most 4096 bytes/],
  [{ count: 4, drainMS: 1 }, /Unknown option drainMS of shards.*drainMs/],
  [{ count: 4, onStuck: 1 }, /onStuck to be a function/],
])("bad options are refused: %#", async (options, message) => {
  await using cluster = connect({ hosts: etcd.endpoints });
  await expect(shards(cluster, "bad", options as never, () => undefined)).rejects.toThrow(message);
});
