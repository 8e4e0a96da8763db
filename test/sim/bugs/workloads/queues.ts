// Queues behind members that reject or ignore some requests.
import { has, NO_SPACE, picky } from "./servers.js";
import type { Workload } from "./world.js";

/** Renewals get through while deletions do not: a release is over after one TTL. */
export const unansweredDeletes: Workload = async (world) => {
  const { leasehold, ttlSeconds, random } = world;
  const servers = picky(world);
  const node = world.node("a", servers);
  const lock = await new leasehold.Mutex(node.cluster, "x").lock();
  await world.sleep(random.between(0, 3000));
  for (const server of servers) server.treat = (request) => (has(request, "delete") ? "ignore" : "execute");
  const asked = world.kernel.now;
  let tookMs: number | undefined;
  void lock.release().then(
    () => (tookMs = world.kernel.now - asked),
    (error: unknown) => world.expect(false, "release in one TTL", String(error)),
  );
  await world.sleep(ttlSeconds * 1200);
  world.expect(tookMs !== undefined, "release in one TTL", `release() took longer than ${ttlSeconds} s`);
  for (const server of servers) server.treat = () => "execute";
  await world.sleep(5000);
  world.expect(world.keys("x").length === 0, "release in one TTL", "the key was left");
  await world.close();
};

/** A permit is granted while etcd rejects puts. When the next permit becomes free, the next waiter gets it. */
export const rejectedAnnouncement: Workload = async (world) => {
  const { leasehold, random } = world;
  const servers = picky(world);
  const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => world.node(name, servers));
  const permit = (node: typeof a) => new leasehold.Semaphore(node!.cluster, "x", 2).acquire();
  const [first, second] = [await permit(a), await permit(b)];
  const third = permit(c);
  await world.sleep(random.between(20, 500));
  let granted = false;
  const fourth = permit(d).then((hold) => {
    granted = true;
    return hold;
  });
  await world.sleep(random.between(20, 500));
  for (const server of servers) server.treat = (request) => (has(request, "put") ? NO_SPACE : "execute");
  await first.release();
  const announced = await third;
  await world.sleep(random.between(0, 2000));
  for (const server of servers) server.treat = () => "execute";
  await world.sleep(random.between(1500, 3000));
  await second.release();
  await world.sleep(3000);
  world.expect(granted, "a free permit is granted", "a waiter did not get a permit that was free for 3 s");
  await announced.release();
  await (await fourth).release();
  await world.close();
};

/** Processes ask for the same names together. All names are joined at once: none waits for one that waits for it. */
export const crossingLockAlls: Workload = async (world) => {
  const { leasehold, random } = world;
  const nodes = ["a", "b", "c"].map((name) => world.node(name));
  await Promise.all(nodes.map((node) => node.cluster.session()));
  for (let left = 5; left > 0; left--) {
    const asked = world.kernel.now;
    const take = async (node: (typeof nodes)[number]): Promise<void> => {
      await world.sleep(random.between(0, 2));
      const locks = await leasehold.lockAll(node.cluster, ["x", "y", "z"], { timeoutMs: 1500 });
      await world.sleep(random.between(0, 50));
      await locks.release();
    };
    const late = (error: unknown): void => world.expect(false, "I7", `lockAll(): ${String(error)}`);
    await Promise.all(nodes.map((node) => take(node).catch(late)));
    const tookMs = world.kernel.now - asked;
    world.expect(tookMs < 2000, "I7", `three calls took ${tookMs.toFixed(0)} ms`);
  }
  await world.close();
};

/** A permit that was waited for is put again, so that the next waiter need not find out by its own reads. */
export const announcedGrant: Workload = async (world) => {
  const { leasehold, random, etcd } = world;
  const [first, second] = ["a", "b"].map((name) => new leasehold.Semaphore(world.node(name).cluster, "x", 1));
  const holder = await first!.acquire();
  const waiting = second!.acquire();
  await world.sleep(random.between(100, 500));
  await holder.release();
  const { key } = await waiting;
  await world.sleep(1000);
  const kv = etcd.store.keys.find((each) => each.key.toString() === key);
  world.expect(
    kv !== undefined && kv.modRevision > kv.createRevision,
    "a grant is announced",
    `${key} was not put again`,
  );
  await world.close();
};

/** A waiter joins while the watches of the holder move to another stream: the holder is told of it all the same. */
export const joinedWhileMoving: Workload = async (world) => {
  const { leasehold, ttlSeconds, random } = world;
  const [a, b] = [world.node("a"), world.node("b")];
  const lock = await new leasehold.Mutex(a.cluster, "x").lock();
  const told: string[] = [];
  lock.onWanted(({ key }) => void told.push(key));
  await world.sleep(random.between(50, 500));
  const cut = world.cut(a, random.between(100, 500));
  const next = new leasehold.Mutex(b.cluster, "x").lock();
  await cut;
  await world.sleep(ttlSeconds * 1000);
  world.expect(lock.held, "holds", "the holder has lost its lock");
  world.expect(told.length === 1, "I22", `the holder was told of ${told.length} waiters`);
  await lock.release();
  await (await next).release();
  await world.close();
};
