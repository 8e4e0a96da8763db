import { inspect } from "node:util";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type Cluster, connect, Election, lockAll, Mutex, RwLock, Semaphore } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd?.stop());

const open = (owner: string): Cluster => connect({ hosts: etcd.member.endpoint, session: { owner } });

describe.concurrent("cluster.snapshot()", { timeout: 30_000 }, () => {
  test("is empty at first, and after everything is released", async ({ expect }) => {
    const cluster = open("a");
    expect(cluster.snapshot()).toEqual({ sessions: [], holds: [], kept: [], waits: [] });
    const lock = await new Mutex(cluster, "alone").lock();
    await lock.release();

    const { sessions, holds, waits } = cluster.snapshot();
    expect([sessions.length, holds, waits]).toEqual([1, [], []]);
    await cluster.close();
    expect(cluster.snapshot().sessions).toEqual([]);
  });

  test("has every kind of hold, with its label and its fence", async ({ expect }) => {
    await using cluster = open("b");
    const { leaseId, owner } = await cluster.session();
    await new Mutex(cluster, "kinds/m", { label: "kinds/:id" }).lock();
    const lock = new RwLock(cluster, "kinds/rw");
    await lock.readLock();
    await new RwLock(cluster, "kinds/w").writeLock();
    await new Semaphore(cluster, "kinds/s", 2).acquire();
    await lockAll(cluster, ["kinds/x", "kinds/y"]);
    const leadership = await new Election(cluster, "kinds/e").campaign("b");

    const { sessions, holds } = cluster.snapshot();

    expect(sessions).toMatchObject([{ leaseId, owner, state: "live", ttlSeconds: 15 }]);
    expect(sessions[0]!.remainingMs).toBeGreaterThan(0);
    expect(holds.map(({ kind, name, fence }) => [kind, name, fence !== undefined])).toEqual([
      ["mutex", "kinds/m", true],
      ["reader", "kinds/rw", false],
      ["writer", "kinds/w", true],
      ["permit", "kinds/s", false],
      ["all", "kinds/x", false],
      ["all", "kinds/y", false],
      ["leadership", "kinds/e", true],
    ]);
    expect(holds[0]).toMatchObject({ label: "kinds/:id", leaseId });
    expect(holds[6]).toMatchObject({ key: leadership.key, fence: leadership.fence });
    expect(holds.every(({ heldMs }) => heldMs >= 0)).toBe(true);
    expect(inspect(leadership)).toMatch(/^Leadership \{\s+name: 'kinds\/e',[^]*fence: \d+n,\s+held: true/);
    await cluster.close({ drainMs: 0 });
  });

  test("tells the key of a sticky lock that nobody has from one that a caller has", async ({ expect }) => {
    await using cluster = open("sticky");
    const mutex = new Mutex(cluster, "sticky", { sticky: true });
    await (await mutex.lock()).release();
    expect(cluster.snapshot()).toMatchObject({ holds: [], kept: [] });
    const lock = await mutex.lock();
    const { leaseId, key, revision } = cluster.snapshot().holds[0]!;
    expect(cluster.snapshot()).toMatchObject({ holds: [{ name: "sticky" }], kept: [] });

    await lock.release();

    const { holds, kept } = cluster.snapshot();
    const idleMs = expect.any(Number) as number;
    expect([holds, kept]).toEqual([[], [{ kind: "mutex", name: "sticky", leaseId, key, revision, idleMs }]]);
    await cluster.close();
    expect(cluster.snapshot().kept).toEqual([]);
  });

  test("has the waits, with their place in the queue", async ({ expect }) => {
    await using holder = open("c1");
    await using waiter = open("c2");
    const lock = await new Mutex(holder, "queue").lock();
    const next = new Mutex(waiter, "queue").lock();
    const all = lockAll(waiter, ["queue-free", "queue"]);
    const joined = () => waiter.snapshot().waits.filter(({ revision }) => revision !== undefined).length;
    await expect.poll(joined).toBe(2);
    await expect.poll(() => waiter.snapshot().waits[1]?.name).toBe("queue");

    const { holds, waits } = waiter.snapshot();
    // lockAll holds nothing before it holds all.
    expect(holds).toEqual([]);
    expect(waits).toMatchObject([
      { kind: "mutex", names: ["queue"], name: "queue", ahead: 1 },
      { kind: "all", names: ["queue-free", "queue"], name: "queue" },
    ]);
    expect(waits[0]!.key).toMatch(/^queue\//);
    expect(waits[0]!.revision).toBeGreaterThan(lock.revision);
    expect(waits[0]!.waitedMs).toBeGreaterThanOrEqual(0);

    await lock.release();
    await (await next).release();
    await (await all).release();
    expect(waiter.snapshot()).toMatchObject({ holds: [], waits: [] });
  });
});
