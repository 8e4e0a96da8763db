// Sessions that end: listeners, close(), orphan() and adopt().
import { EtcdProxy } from "./servers.js";
import type { Workload, World } from "./world.js";

const LOST = "LOCK_LOST";
const REFUSED = "ETCD_REFUSED";
const codeOf = (error: unknown): string => (error as { code?: string } | undefined)?.code ?? String(error);

/** A session is lost while it holds locks. A listener of its own signal looks at the locks, and releases them. */
export const sessionListener: Workload = async (world) => {
  const { leasehold, ttlSeconds, random, etcd } = world;
  const node = world.node("a");
  const session = await leasehold.Session.open(node.cluster, { ttlSeconds });
  const locks = await Promise.all(["x", "y"].map((name) => new leasehold.Mutex(session, name).lock()));
  const released: Promise<void>[] = [];
  session.signal.addEventListener("abort", () => {
    for (const lock of locks) {
      const { name } = lock;
      world.expect(lock.signal.aborted, "lost with its session", `the signal of ${name} was not aborted`);
      const resolved = (): void => world.expect(false, "lost with its session", `${name} was released`);
      const rejected = (error: unknown): void =>
        world.expect(codeOf(error) === LOST, "lost with its session", `${name}: ${codeOf(error)}`);
      released.push(lock.release().then(resolved, rejected));
    }
  });
  await world.sleep(random.between(0, 3000 * ttlSeconds));
  if (random.chance(0.5)) etcd.leases.revoke(session.leaseId);
  else for (const link of node.links) link.set("black hole");
  await world.sleep(3000 * ttlSeconds);
  for (const link of node.links) link.set("up");
  await Promise.all(released);
  world.expect(released.length > 0, "lost with its session", "the session was never lost");
  await world.close();
};

/** A session with waiting calls is orphaned: only its holds remain. Another process takes one over. */
export const orphanAndAdopt: Workload = async (world) => {
  const { leasehold, ttlSeconds, random } = world;
  const [a, b, other] = [world.node("a"), world.node("b"), world.node("other")];
  const session = await leasehold.Session.open(a.cluster, { ttlSeconds });
  const held = await new leasehold.Mutex(session, "x").lock();
  const busy = await new leasehold.Mutex(other.cluster, "y").lock();
  await world.sleep(random.between(0, 50));
  const waiting = Array.from({ length: 3 }, () => new leasehold.Mutex(session, "y").lock());
  const refused = Promise.allSettled(waiting);
  await world.sleep(random.pick([0, random.between(0, 4), random.between(0, 40)]));
  const leaseId = await session.orphan();
  const left = world.keys("").filter((key) => key.includes(leaseId.toString(16)) && key !== held.key);
  world.expect(left.length === 0, "orphan leaves holds only", `${left.join()} remained`);
  await refused;
  await adopt(world, { leaseId, fence: held.fence, node: b });
  await busy.release();
  await world.close();
};

interface Orphan {
  readonly leaseId: bigint;
  readonly fence: bigint;
  readonly node: ReturnType<World["node"]>;
}

/** The next call for the name has the same fence, whatever happened to the connection in between. */
async function adopt(world: World, { leaseId, fence, node }: Orphan): Promise<void> {
  const { leasehold, ttlSeconds, random } = world;
  const session = await leasehold.Session.adopt(node.cluster, leaseId);
  const adopted = world.kernel.now;
  if (random.chance(0.5)) await world.cut(node, random.between(0, 100));
  await world.sleep(random.between(0, ttlSeconds * 600));
  const lock = await new leasehold.Mutex(session, "x").lock();
  // After one TTL without a claim, the entry is deleted.
  if (world.kernel.now < adopted + ttlSeconds * 950)
    world.expect(lock.fence === fence, "adopted place", `the fence became ${lock.fence} instead of ${fence}`);
  await lock.release();
}

/** An opening whose answers are lost fails. When the cluster is closed, no lease remains. */
export const failedOpening: Workload = async (world) => {
  const { leasehold, random, etcd } = world;
  const node = world.node("a");
  // A first session connects, so that requests are sent.
  await leasehold.Session.open(node.cluster).then((session) => session.close());
  for (const link of node.links) link.profile = { ...link.profile, loseAnswer: 1 };
  const timeoutMs = random.between(50, 900);
  await leasehold.Session.open(node.cluster, { ttlSeconds: 60, timeoutMs: Math.ceil(timeoutMs) }).then(
    () => world.expect(false, "fails", "a session was opened without an answer"),
    () => undefined,
  );
  for (const link of node.links) link.profile = { ...link.profile, loseAnswer: 0 };
  await world.sleep(random.pick([0, random.between(0, 20)]));
  await node.cluster.close();
  // What was sent before arrives.
  await world.sleep(10);
  world.expect(
    etcd.leases.all.length === 0,
    "close leaves no lease",
    "the lease of a failed opening was left",
  );
};

/**
 * An `etcd grpc-proxy` grants the lease of a first lock, and shows what it is only by its answer to a probe. No key is put through it:
 * the lock is granted by etcd, or not at all. When the cluster is closed, no lease remains.
 */
export const etcdProxy: Workload = async (world) => {
  const { leasehold, random, etcd } = world;
  const proxy = new EtcdProxy(etcd.members[0]!);
  const direct = random.pick([[], etcd.members]);
  const { cluster } = world.node("a", [proxy, ...direct]);
  const outcome = await new leasehold.Mutex(cluster, "x").lock().then(() => "granted", codeOf);
  const expected = direct.length > 0 ? "granted" : REFUSED;
  world.expect(outcome === expected, "no handle behind a proxy", `lock() ended with ${outcome}`);
  world.expect(!proxy.hasPut, "no handle behind a proxy", "a key was put through a proxy");
  await cluster.close({ drainMs: 0 });
  world.expect(etcd.leases.all.length === 0, "close leaves no lease", "the lease of a proxy was left");
};

/** An operator puts a key without its lease. The session still deletes the key when it closes. */
export const detachedKey: Workload = async (world) => {
  const { leasehold, ttlSeconds, random, etcd } = world;
  const node = world.node("a");
  const session = await leasehold.Session.open(node.cluster, { ttlSeconds });
  const lock = await new leasehold.Mutex(session, "x").lock();
  await world.sleep(random.between(0, 2000));
  etcd.store.write(() => etcd.store.put({ key: lock.key, value: "by hand", leaseId: 0n }));
  await world.sleep(random.pick([0, random.between(0, 2000)]));
  await session.close({ drainMs: 0 });
  world.expect(world.keys("x").length === 0, "close leaves no key", `${lock.key} was left`);
  await world.close();
};

/** An operator puts a key on a lease that its user may not write: from 3.6 on, etcd refuses to renew it, and says why. */
export const refusedRenewal: Workload = Object.assign(
  async (world: World) => {
    const { leasehold, ttlSeconds, random, etcd } = world;
    const session = await leasehold.Session.open(world.node("a").cluster, { ttlSeconds });
    await world.sleep(random.between(0, 300 * ttlSeconds));
    etcd.store.write(() => etcd.store.put({ key: "other/key", value: "", leaseId: session.leaseId }));
    const adopted = leasehold.Session.adopt(world.node("b").cluster, session.leaseId);
    const why = await adopted.then(() => "adopted", codeOf);
    world.expect(why === REFUSED, "a refusal is reported", `adopt() ended with ${why}`);
    await world.sleep(2000 * ttlSeconds);
    const { cause } = session.signal.reason as Error;
    world.expect(
      codeOf(cause) === REFUSED,
      "a refusal is reported",
      `the loss had the cause ${String(cause)}`,
    );
    await world.close();
  },
  {
    etcd: {
      version: "3.6" as const,
      user: { username: "worker", password: "secret" },
      auth: {
        users: { worker: { password: "secret", roles: ["worker"] } },
        roles: { worker: { readwrite: ["jobs/"] } },
      },
    },
  },
);

/** The session begins to end while lockAll() joins: its close waits for holds of callers only. */
export const closeDuringLockAll: Workload = async (world) => {
  const { leasehold, ttlSeconds, random } = world;
  const node = world.node("a");
  const session = await leasehold.Session.open(node.cluster, { ttlSeconds });
  const held = await new leasehold.Mutex(session, "w").lock();
  const locking = leasehold.lockAll(session, ["x", "y", "z"]);
  const granted = locking.then(
    (lock) => lock.release().then(() => true),
    () => false,
  );
  await world.sleep(random.between(0, 6));
  const closing = session.close({ drainMs: 60_000 });
  await world.sleep(random.between(0, 2000));
  const asked = world.kernel.now;
  await held.release();
  await closing;
  await granted;
  const tookMs = world.kernel.now - asked;
  world.expect(tookMs < 2000, "close waits for holds only", `close() lasted ${tookMs.toFixed(0)} ms longer`);
  await world.close();
};
