// Answers that are late or lost, rejections that are wrong, and requests that are executed twice.
import { has, Learner, picky } from "./servers.js";
import type { World, Workload } from "./world.js";

type Mutex = InstanceType<World["leasehold"]["Mutex"]>;
type Lock = Awaited<ReturnType<Mutex["lock"]>>;

/** How long a renewal may stay unanswered (`patienceMs` in src/lock/session/renewal.ts). */
const patienceMs = (ttlSeconds: number): number => Math.min((ttlSeconds * 1000) / 6, 1500);

/** The answer to a renewal comes late, and then nothing any more: the hold ends before etcd's lease does. */
export const lateThenSilent: Workload = async (world) => {
  const { leasehold, ttlSeconds, random, etcd } = world;
  const servers = picky(world);
  const node = world.node("a", servers);
  const [link] = node.links;
  const lock = await new leasehold.Mutex(node.cluster, "x").lock();
  await world.sleep(random.between(0, 3000));
  await new Promise<void>((resolve) => (servers[0]!.onRenewal = resolve));
  link!.set("answers lost");
  await world.sleep(random.between(0.5, 0.97) * patienceMs(ttlSeconds));
  link!.set("up");
  // The longest delay of a calm link.
  await world.sleep(2.1);
  link!.set("black hole");
  let claimed = false;
  etcd.store.onChange(() => (claimed ||= lock.held));
  await world.sleep(ttlSeconds * 2500);
  world.expect(!claimed, "I9", `${lock.key} was held when etcd deleted it`);
  link!.set("up");
  await world.close();
};

/** The answer to a release is lost: the release has deleted the key itself, and reports no loss. */
export const lostReleaseAnswers: Workload = async (world) => {
  const { leasehold, random } = world;
  const servers = picky(world);
  const node = world.node("a", servers);
  const names = Array.from({ length: random.pick([1, 6, 12]) }, (_, n) => `x${n}`);
  const locks = await Promise.all(names.map((name) => new leasehold.Mutex(node.cluster, name).lock()));
  await world.sleep(random.between(0, 1000));
  let lost = 0;
  for (const server of servers)
    server.treat = (request) => (has(request, "delete") && lost++ < 3 ? "lose answer" : "execute");
  await Promise.all(
    locks.map((lock) =>
      lock.release().catch((error: unknown) => {
        world.expect(false, "I11", `the release of ${lock.name} was rejected: ${String(error)}`);
      }),
    ),
  );
  await world.close();
};

/** etcd executes the join that crosses the quota, and rejects it: the name is soon free for others. */
export const crossedQuota: Workload = async (world) => {
  const { leasehold, random, etcd } = world;
  const [a, b] = [world.node("a"), world.node("b")];
  const held = await new leasehold.Mutex(a.cluster, "w").lock();
  const other = await new leasehold.Mutex(b.cluster, "w2").lock();
  await world.sleep(random.between(0, 500));
  etcd.quota.cross();
  const rejected = await new leasehold.Mutex(a.cluster, "x").lock().then(
    () => false,
    () => true,
  );
  world.expect(rejected, "rejects", "the join that crossed the quota was not rejected");
  await world.sleep(random.between(0, 50));
  etcd.quota.clear();
  const asked = world.kernel.now;
  const lock = await new leasehold.Mutex(b.cluster, "x").lock();
  const tookMs = world.kernel.now - asked;
  const text = `a rejected call blocked the next one for ${tookMs.toFixed(0)} ms`;
  world.expect(tookMs < 1000, "a rejected call leaves the queue", text);
  for (const each of [held, other, lock]) await each.release();
  await world.close();
};

/** One of the hosts is a learner, which rejects what it is asked: the others serve. */
export const learner: Workload = async (world) => {
  const { leasehold, random, etcd } = world;
  const servers = [...etcd.members, new Learner(etcd.members[0]!)];
  for (let left = 3; left > 0; left--) {
    const node = world.node(`a${left}`, servers);
    await world.sleep(random.between(0, 100));
    const locking = new leasehold.Mutex(node.cluster, "x").lock();
    const lock = await locking.catch((error: unknown) => String(error));
    if (typeof lock === "string") world.expect(false, "I17", `one of two hosts was a learner: ${lock}`);
    else await lock.release();
  }
  await world.close();
};

/** A proxy sends joins twice. Each call is granted, and leaves no key. */
export const repeatedJoins: Workload = async (world) => {
  const { leasehold, random } = world;
  const servers = picky(world);
  const node = world.node("a", servers);
  await node.cluster.session();
  for (const server of servers)
    server.treat = (request) => (has(request, "put") && random.chance(0.5) ? "repeat" : "execute");
  for (let left = 5; left > 0; left--) {
    const asked = world.kernel.now;
    const lock = await new leasehold.Mutex(node.cluster, `x${left}`).lock();
    const tookMs = world.kernel.now - asked;
    world.expect(tookMs < 1000, "I7", `a free lock was granted after ${tookMs.toFixed(0)} ms`);
    await lock.release();
    await world.sleep(50);
    world.expect(world.keys("x").length === 0, "I8", `${world.keys("x").join()} remained`);
  }
  await world.close();
};

/** A queue with entries of names that lie under its own is refused. */
const refusedAsNested = (error: { code?: string }): undefined => {
  if (error.code !== "KIND_MISMATCH") throw error as Error;
};

/** By their keys, they come before and after those of `x`. */
const NESTED = ["x", "x/-y", "x/z", "x/-y/-z"];

/** Calls for names of which some lie under others, made together: each is granted once, and leaves no key. */
export const nestedNames: Workload = async (world) => {
  const { leasehold, random } = world;
  const nodes = [world.node("a"), world.node("b")];
  const holders = new Map<string, Lock>();
  const use = async (node: (typeof nodes)[number], name: string): Promise<void> => {
    const lock = await new leasehold.Mutex(node.cluster, name).lock().catch(refusedAsNested);
    if (lock === undefined) return;
    world.expect(!holders.has(name), "I1", `${lock.key} and ${holders.get(name)?.key} are held`);
    holders.set(name, lock);
    await world.sleep(random.between(0, 5));
    world.expect(lock.held, "I11", `${lock.key} was lost`);
    holders.delete(name);
    await lock.release();
  };
  for (let left = 10; left > 0; left--) {
    const names = Array.from({ length: 12 }, () => random.pick(NESTED));
    const asked = world.kernel.now;
    await Promise.all(names.map((name) => use(random.pick(nodes), name)));
    const tookMs = world.kernel.now - asked;
    world.expect(tookMs < 2000, "I7", `twelve calls took ${tookMs.toFixed(0)} ms`);
    await world.sleep(50);
    world.expect(world.keys("x").length === 0, "I8", `${world.keys("x").join()} remained`);
  }
  await world.close();
};
