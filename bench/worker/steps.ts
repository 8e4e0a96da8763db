// Single calls that are timed one by one over a slow network: how long each takes, in milliseconds.
import { setTimeout as delay } from "node:timers/promises";
import { Etcd3, EtcdLockFailedError } from "etcd3";
import { load } from "../../test/lab/runner/leasehold.js";
import { now } from "./clock.js";
import type { At, StepName } from "./protocol.js";

type Step = (at: At) => Promise<number>;
export type Steps = Partial<Readonly<Record<StepName, Step>>>;

/** By then, a waiter has its place and its watches. */
const SETTLE_MS = 400;
const MANY = 20;
const TTL_SECONDS = 15;

async function timed(work: () => unknown): Promise<number> {
  const begun = now();
  await work();
  return (now() - begun) / 1e6;
}

const urlOf = ({ address, ca }: At): string => `${ca === undefined ? "http" : "https"}://${address}`;
const numbered = (name: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${name}-${n}`);

export async function leaseholdSteps(build: string | undefined): Promise<Steps> {
  const { connect, Election, lockAll, Mutex, once } = await load(build);
  type Cluster = ReturnType<typeof connect>;
  const fresh = (at: At): Cluster =>
    connect({
      hosts: urlOf(at),
      session: { ttlSeconds: TTL_SECONDS },
      ...(at.user && { auth: at.user }),
      ...(at.ca !== undefined && { credentials: { rootCertificate: Buffer.from(at.ca) } }),
    });
  const close = (cluster: Cluster): Promise<void> => cluster.close({ drainMs: 0 });
  const cold =
    (work: (cluster: Cluster, name: string) => unknown): Step =>
    async (at) => {
      let cluster: Cluster | undefined;
      try {
        return await timed(() => work((cluster = fresh(at)), at.name));
      } finally {
        if (cluster) await close(cluster);
      }
    };
  const connected = async (at: At): Promise<Cluster> => {
    const cluster = fresh(at);
    await (await new Mutex(cluster, `${at.name}-warm`).lock()).release();
    return cluster;
  };
  const warm =
    (work: (cluster: Cluster, name: string) => Promise<number>): Step =>
    async (at) => {
      const cluster = await connected(at);
      try {
        return await work(cluster, at.name);
      } finally {
        await close(cluster);
      }
    };
  return {
    "first lock": cold((cluster, name) => new Mutex(cluster, name).lock()),
    "first tryLock, taken": async (at) => {
      const holder = await connected(at);
      await new Mutex(holder, at.name).lock();
      const ms = await cold((cluster, name) => new Mutex(cluster, name).tryLock())(at);
      await close(holder);
      return ms;
    },
    lock: warm((cluster, name) => timed(() => new Mutex(cluster, name).lock())),
    tryLock: warm((cluster, name) => timed(() => new Mutex(cluster, name).tryLock())),
    release: warm(async (cluster, name) => {
      const held = await new Mutex(cluster, name).lock();
      return timed(() => held.release());
    }),
    "lock and release": warm((cluster, name) =>
      timed(async () => (await new Mutex(cluster, name).lock()).release()),
    ),
    "lock, release not awaited, lock": warm((cluster, name) =>
      timed(async () => {
        const mutex = new Mutex(cluster, name);
        void (await mutex.lock()).release();
        await mutex.lock();
      }),
    ),
    "20 locks of 20 names": warm((cluster, name) =>
      timed(() => Promise.all(numbered(name, MANY).map((each) => new Mutex(cluster, each).lock()))),
    ),
    "lockAll of 5": warm((cluster, name) => timed(() => lockAll(cluster, numbered(name, 5)))),
    "hand-over": async (at) => {
      const clusters = await Promise.all([connected(at), connected({ ...at, name: `${at.name}-other` })]);
      const held = await new Mutex(clusters[0], at.name).lock();
      const next = new Mutex(clusters[1], at.name).lock();
      await delay(SETTLE_MS);
      const ms = await timed(() => Promise.all([held.release(), next]));
      await Promise.all(clusters.map(close));
      return ms;
    },
    "lock that another process keeps": async (at) => {
      const clusters = await Promise.all([connected(at), connected({ ...at, name: `${at.name}-other` })]);
      const keeper = new Mutex(clusters[0], at.name, { sticky: true });
      // The first lock of a name is plain.
      for (let n = 0; n < 2; n++) await (await keeper.lock()).release();
      await delay(SETTLE_MS);
      const ms = await timed(() => new Mutex(clusters[1], at.name).lock());
      await Promise.all(clusters.map(close));
      return ms;
    },
    campaign: warm((cluster, name) => timed(() => new Election(cluster, name).campaign("me"))),
    proclaim: warm(async (cluster, name) => {
      const leadership = await new Election(cluster, name).campaign("me");
      return timed(() => leadership.proclaim("again"));
    }),
    "once, new slot": warm((cluster, name) => timed(() => once(cluster, name, 7, () => Promise.resolve()))),
    close: async (at) => {
      const cluster = await connected(at);
      return timed(() => close(cluster));
    },
  };
}

/** Its own Lock, with one lease for each; its client has no session to close. */
export function etcd3Steps(): Steps {
  const fresh = (at: At): Etcd3 =>
    new Etcd3({
      hosts: urlOf(at),
      ...(at.user && { auth: at.user }),
      ...(at.ca !== undefined && { credentials: { rootCertificate: Buffer.from(at.ca) } }),
    });
  const lockOf = (client: Etcd3, name: string) => client.lock(name).ttl(TTL_SECONDS);
  const cold =
    (work: (client: Etcd3, name: string) => unknown): Step =>
    async (at) => {
      let client: Etcd3 | undefined;
      try {
        return await timed(() => work((client = fresh(at)), at.name));
      } finally {
        client?.close();
      }
    };
  const warm =
    (work: (client: Etcd3, name: string) => Promise<number>): Step =>
    async (at) => {
      const client = fresh(at);
      try {
        await (await lockOf(client, `${at.name}-warm`).acquire()).release();
        return await work(client, at.name);
      } finally {
        client.close();
      }
    };
  const acquire = (client: Etcd3, name: string) => timed(() => lockOf(client, name).acquire());
  return {
    "first lock": cold((client, name) => lockOf(client, name).acquire()),
    "first tryLock, taken": async (at) => {
      const holder = fresh(at);
      await lockOf(holder, at.name).acquire();
      const refused = (error: unknown): void => {
        if (!(error instanceof EtcdLockFailedError)) throw error;
      };
      const ms = await cold((client, name) => lockOf(client, name).acquire().catch(refused))(at);
      holder.close();
      return ms;
    },
    lock: warm(acquire),
    tryLock: warm(acquire),
    release: warm(async (client, name) => {
      const held = await lockOf(client, name).acquire();
      return timed(() => held.release());
    }),
    "lock and release": warm((client, name) =>
      timed(async () => (await lockOf(client, name).acquire()).release()),
    ),
    "20 locks of 20 names": warm((client, name) =>
      timed(() => Promise.all(numbered(name, MANY).map((each) => lockOf(client, each).acquire()))),
    ),
  };
}
