// Faults that hit the servers.
import { kill } from "../faults.js";
import { RedisTrio } from "../grounds/redis.js";
import { within } from "../patience.js";
import { PATIENCE_MS, type Stage } from "../stage.js";
import { etcdOf, inQueue, LONG_MS, onEtcd, type Scenario } from "./scenario.js";

const WATCH = "/etcdserverpb.Watch/Watch";
const TXN = "/etcdserverpb.KV/Txn";

export const memberCut: Scenario = {
  name: "member-cut",
  title: "the etcd member that a waiter uses is cut off from its peers, then the holder is killed",
  suits: onEtcd,
  members: 3,
  calls: true,
  async play(stage) {
    const [a, b] = await stage.start();
    const etcd = etcdOf(stage);
    await stage.acquire(a);
    const wait = stage.ask(b);
    const path = stage.subject.queues ? WATCH : TXN;
    const used = await Promise.race(b.links.calls.map((proxy, n) => proxy.seen(path).then(() => n)));
    const member = etcd.members[used];
    if (member === undefined) throw new Error("the waiter uses no member");
    const breakage = { fault: "isolate", effect: "none", hits: [] } as const;
    const heal = await stage.inflict(breakage, () => etcd.isolate(member));
    await kill(stage, a);

    await stage.first([wait]);
    // The member that returns makes the others elect again, for which no client is responsible.
    const joined = await stage.inflict({ fault: "rejoin", effect: "hinders", hits: "all" }, () => {});
    await heal();
    await joined();

    await stage.serve([wait]);
  },
};

export const oneOfThree: Scenario = {
  name: "one-of-three",
  title: "one of three Redis servers stands still",
  suits: ({ ground }) => ground === "redis-trio",
  async play(stage) {
    const [a, b] = await stage.start();
    const hold = await stage.acquire(a);
    const wait = stage.ask(b);
    const heal = await stage.inflict({ fault: "pause-server", effect: "none", hits: [] }, () =>
      pauseLast(stage),
    );
    await within(LONG_MS, Promise.race([hold.lost, stage.first([wait], LONG_MS)]));
    const released = hold.release();
    await stage.first([wait]);
    await heal();

    await within(PATIENCE_MS, released);
    await stage.serve([wait]);
  },
};

function pauseLast({ ground }: Stage) {
  if (!(ground instanceof RedisTrio)) throw new TypeError("Expected three Redis servers");
  const server = ground.servers.at(-1);
  server?.pause();
  return () => server?.resume();
}

export const failover: Scenario = {
  name: "failover",
  title:
    "etcd's leader is killed / the master dies before its replica has the lock / two of three are restarted",
  members: 3,
  async play(stage) {
    const [a, b] = await stage.start();
    await stage.ground.beforeFailOver();
    const hold = await stage.acquire(a);
    const wait = stage.ask(b);
    if (inQueue(stage.subject)) await etcdOf(stage).queued(stage.name, 2);
    const breakage = { fault: "failover", effect: "hinders", hits: "all" } as const;
    const heal = await stage.inflict(breakage, () => stage.ground.failOver());
    await heal();
    const next = await stage.first([wait], LONG_MS);
    if (next !== undefined) await within(LONG_MS, hold.lost);

    await within(PATIENCE_MS, hold.release());

    await stage.serve([wait]);
  },
};
