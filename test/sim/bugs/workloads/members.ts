// Members of a cluster of three that are behind the others.
import type { SimNode } from "../../node/sim-node.js";
import { picky } from "./servers.js";
import type { World, Workload } from "./world.js";

/** Calls that need a quorum: they show the process the present raft term. */
async function callOften(
  { leasehold, sleep, random }: World,
  node: SimNode,
  on: () => boolean,
): Promise<void> {
  while (on()) {
    const lock = new leasehold.Mutex(node.cluster, `busy ${node.name}`).tryLock({ timeoutMs: 5000 });
    await (await lock.catch(() => undefined))?.release().catch(() => undefined);
    await sleep(random.between(50, 300));
  }
}

/**
 * The disk of the leader stalls. Another member becomes the leader, and the old one goes on to answer renewals (etcd#15247).
 * A process whose calls have seen the new term does not count them: it never claims what etcd has deleted.
 */
export const stalledLeader: Workload = Object.assign(
  async (world: World): Promise<void> => {
    const { leasehold, etcd, random, ttlSeconds } = world;
    const { cluster } = etcd;
    const nodes = ["a", "b", "c"].map((name) => world.node(name));
    const locks = await Promise.all(
      nodes.map((node) => new leasehold.Mutex(node.cluster, `x ${node.name}`).lock()),
    );
    let over = false;
    // When it goes on, it revokes living leases: no client can prevent that.
    etcd.store.onChange(({ events }) => {
      if (over) return;
      for (const { kind, kv } of events) {
        const lock = kind === "DELETE" && locks.find(({ key }) => key === kv.key.toString());
        if (lock) world.expect(!lock.held, "I9", `${lock.key} was held when etcd deleted it`);
      }
    });
    await world.sleep(random.between(0, 1000));
    const stalled = cluster!.leader!.node.index;
    cluster!.block(stalled, true);
    const calling = nodes.map((node) => callOften(world, node, () => !over));
    await world.sleep(ttlSeconds * 2000 + 6000);
    over = true;
    cluster!.block(stalled, false);
    await Promise.all(calling);
    await Promise.all(locks.map((lock) => lock.release().catch(() => undefined)));
    await world.close();
  },
  { etcd: { members: 3, version: "3.4" } as const },
);

/**
 * The member that has the watches of a process applies its entries late. The calls of the process have moved to another member,
 * where it joins a queue: the answer of the late member does not show its own place, which it keeps all the same.
 */
export const staleMember: Workload = Object.assign(
  async (world: World): Promise<void> => {
    const { leasehold, etcd, random } = world;
    const servers = picky(world);
    const [a, b, c] = [world.node("a"), world.node("b", servers), world.node("c")];
    const held = await Promise.all(["w", "x"].map((name) => new leasehold.Mutex(a.cluster, name).lock()));
    await c.cluster.session();
    const first = new leasehold.Mutex(b.cluster, "w").lock();
    await world.sleep(random.between(200, 500));
    const late = servers.findIndex(({ hasWatches }) => hasWatches);
    await leaveForCalls(world, b, servers[late]!);
    etcd.cluster!.lag(late, random.between(100, 600));
    const granted: string[] = [];
    const take = async (node: SimNode): Promise<void> => {
      const lock = await new leasehold.Mutex(node.cluster, "x").lock();
      granted.push(node.name);
      await lock.release();
    };
    const second = take(b);
    while (world.keys("x/").length < 2) await world.sleep(1);
    const third = take(c);
    await world.sleep(random.between(50, 500));
    await Promise.all(held.map((lock) => lock.release()));
    await world.sleep(random.between(0, 500));
    etcd.cluster!.lag(late, 0);
    await Promise.all([second, third]);
    world.expect(granted.join() === "b,c", "I6", `b joined before c, and the order was ${granted.join()}`);
    await (await first).release();
    await world.close();
  },
  { etcd: { members: 3 } },
);

/** A call is not answered: further ones go to another member, while the streams stay. */
async function leaveForCalls(
  { leasehold }: World,
  node: SimNode,
  server: ReturnType<typeof picky>[number],
): Promise<void> {
  server.treat = ({ kind }) => (kind === "txns" ? "ignore" : "execute");
  const lock = await new leasehold.Mutex(node.cluster, "y").lock();
  server.treat = () => "execute";
  await lock.release();
}
