// Single calls whose session ends, or whose answer is lost.
import type { Workload } from "./world.js";

/** A waiter is granted while its process is paused, past the end of its session: without `rejoin`, the call is rejected. */
export const pausedWaiter: Workload = async (world) => {
  const { leasehold, ttlSeconds, random } = world;
  const [a, b] = [world.node("a"), world.node("b")];
  const held = await new leasehold.Mutex(a.cluster, "x").lock();
  const { leaseId } = await b.cluster.session();
  const waiting = new leasehold.Mutex(b.cluster, "x").lock().catch(() => undefined);
  await world.sleep(random.between(50, 3000));
  b.pause();
  await world.sleep(random.between(0, 500 * ttlSeconds));
  await held.release();
  await world.sleep(2000 * ttlSeconds);
  b.resume();
  const lock = await waiting;
  const same = lock === undefined || lock.key.includes(leaseId.toString(16));
  world.expect(same, "joins once", `a call that had joined was granted ${lock?.key} with another session`);
  await lock?.release();
  await world.close();
};

/** Answers to tries are lost: the revision of what is granted is that of its key. */
export const lostTryAnswers: Workload = async (world) => {
  const { leasehold, random, etcd } = world;
  const node = world.node("a");
  await node.cluster.session();
  for (const link of node.links) link.profile = { ...link.profile, loseAnswer: 0.3 };
  for (let left = 5; left > 0; left--) {
    const lock = new leasehold.RwLock(node.cluster, `x${left}`);
    const hold = await lock.tryReadLock({ timeoutMs: 5000 }).catch(() => undefined);
    const kv = etcd.store.keys.find(({ key }) => key.toString() === hold?.key);
    if (hold !== undefined && kv !== undefined)
      world.expect(
        kv.createRevision === hold.revision,
        "granted under its key",
        `${hold.key} was granted under revision ${hold.revision}, and was created at ${kv.createRevision}`,
      );
    await world.sleep(random.between(0, 50));
    await hold?.release().catch(() => undefined);
  }
  for (const link of node.links) link.profile = { ...link.profile, loseAnswer: 0 };
  await world.close();
};

/** An operator revokes the lease of an idle session: no call has noticed that when the next one begins. */
export const unnoticedEnd: Workload = async (world) => {
  const { leasehold, random, etcd, ttlSeconds } = world;
  const node = world.node("a");
  for (let left = 3; left > 0; left--) {
    const session = await node.cluster.session();
    await world.sleep(random.between(0, 1000 * ttlSeconds));
    etcd.leases.revoke(session.leaseId);
    await world.sleep(random.pick([0, random.between(0, 400 * ttlSeconds)]));
    const locking = new leasehold.Mutex(node.cluster, "x").lock();
    const lock = await locking.catch((error: unknown) => (error as Error).message);
    if (typeof lock === "string")
      world.expect(false, "rejected after join", `it had joined nothing: ${lock}`);
    else await lock.release();
  }
  await world.close();
};
