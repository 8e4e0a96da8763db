// A proxy that repeats a request, as one with a retry policy does when its backend connection breaks: etcd executes it
// twice.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  connect,
  Election,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  type Cluster,
  type Hold,
} from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { type GrpcProxy, startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { meter } from "../../support/fixtures/spent.js";
import { placesOf } from "../../support/clients/server-view.js";

const TXN = "/etcdserverpb.KV/Txn";
const TTL_SECONDS = 5;
const FEW_TTLS = { timeoutMs: 4000 * TTL_SECONDS };

let etcd: EtcdCluster;
let proxy: GrpcProxy;
let cluster: Cluster;
let session: Session;
let rivals: Cluster;

beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  cluster = connect({ hosts: proxy.endpoint });
  rivals = connect({ hosts: etcd.endpoints });
  session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
}, 60_000);
afterAll(async () => {
  await Promise.all([cluster.close({ drainMs: 0 }), rivals.close({ drainMs: 0 })]);
  await proxy.stop();
  await etcd.stop();
});

type Take = (
  name: string,
  from?: Cluster | Session,
) => Promise<Pick<Hold, "held" | "release" | "revision"> | undefined>;

const KINDS: Readonly<Record<string, Take>> = {
  "a lock": (name, from = session) => new Mutex(from, name).lock(FEW_TTLS),
  "a tryLock": (name, from = session) => new Mutex(from, name).tryLock(FEW_TTLS),
  "a read lock": (name, from = session) => new RwLock(from, name).readLock(FEW_TTLS),
  "a write lock": (name, from = session) => new RwLock(from, name).writeLock(FEW_TTLS),
  "a permit": (name, from = session) => new Semaphore(from, name, 2).acquire(FEW_TTLS),
  "several locks at once": (name, from = session) => lockAll(from, [`${name}/a`, `${name}/b`], FEW_TTLS),
  "a campaign": (name, from = session) => new Election(from, name).campaign("the same value", FEW_TTLS),
};
const kinds = Object.entries(KINDS);
const nameOf = (what: string) => what.replaceAll(" ", "-");

describe("a request that a proxy sends twice", () => {
  test.each(kinds)("gives %s once, under one key", async (what, take) => {
    const name = `twice/${nameOf(what)}`;
    const rule = proxy.rule({ path: TXN, act: "repeat", when: takesPlace, times: 1 });

    const held = await take(name);

    expect(rule.hits).toBe(1);
    expect(held?.held).toBe(true);
    const places = await placesOf(etcd.member, name);
    expect(places.map(({ revision }) => revision)).toEqual(places.map(() => held?.revision));
    expect(places).toHaveLength(what.startsWith("several") ? 2 : 1);
    await held?.release();
    expect(await placesOf(etcd.member, name)).toEqual([]);
  });

  test.each(kinds)("releases %s, and calls it no loss", async (what, take) => {
    const name = `released-twice/${nameOf(what)}`;
    const held = await take(name);
    const rule = proxy.rule({ path: TXN, act: "repeat", when: givesBack, times: 1 });

    await held?.release();

    expect(rule.hits).toBe(1);
    expect(await placesOf(etcd.member, name)).toEqual([]);
  });

  test("is not answered with more and more keys when every transaction is sent twice", async () => {
    const every = proxy.rule({ path: TXN, act: "repeat" });
    const counted = await meter(etcd.member);

    const lock = await new Mutex(session, "every").lock(FEW_TTLS);
    await lock.release();
    proxy.remove(every);

    // One put and one delete: the repeated requests change nothing.
    expect(await counted.read()).toMatchObject({ revisions: 2 });
  });

  test("blocks nobody when the second one arrives after the release", async () => {
    const ghosts = async ([what, take]: (typeof kinds)[number]) => {
      const again = proxy.rule({ path: TXN, act: "repeat-late", when: takesPlace, times: 1 });
      const held = await take(`late/${nameOf(what)}`);
      await held?.release();
      again.release();
      await again.answered();
      return placesOf(etcd.member, `late/${nameOf(what)}`);
    };
    for (const kind of kinds) expect(await ghosts(kind)).not.toEqual([]);

    const endings = kinds
      .filter(([what]) => what !== "a tryLock")
      .map(async ([what, take]) => (await take(`late/${nameOf(what)}`, rivals))?.release());
    await Promise.all(endings);

    expect(session.state).toBe("live");
  });
});

test("the release of a lock whose lease was revoked unseen is a loss", async () => {
  await using own = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
  const lock = await new Mutex(own, "revoked").lock();
  await etcd.member.gateway("/v3/lease/revoke", { ID: own.leaseId.toString() });

  const released = lock.release();

  await expect(released).rejects.toMatchObject({ code: "LOCK_LOST", loss: "revoked" });
  expect(own.state).toBe("lost");
});
