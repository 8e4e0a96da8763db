import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { placesOf } from "../../support/clients/server-view.js";
import { meter } from "../../support/fixtures/spent.js";

/** No renewal falls into a test, nor does the watch of a key that has been held for long. */
const SESSION = { ttlSeconds: 3600 };
const TXN = "/etcdserverpb.KV/Txn";
const LOCKS = 512;

let etcd: EtcdCluster;
let cluster: Cluster;
let session: Session;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints, requestTimeoutMs: 20_000 });
  session = await Session.open(cluster, SESSION);
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const mutexes = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, n) => new Mutex(session, `${prefix}/${n}`));

test("512 locks taken at once and given back at once cost a request per 20 of these operations at most", async () => {
  const counted = await meter(etcd.member);

  const locks = await Promise.all(mutexes("many", LOCKS).map((mutex) => mutex.lock()));
  const { revisions, ...taken } = await counted.read();
  expect(locks.every(({ held }) => held)).toBe(true);
  await Promise.all(locks.map((lock) => lock.release()));

  const { Txn = 0, revisions: all = 0, ...others } = await counted.read();
  console.log(
    `${2 * LOCKS} operations in ${Txn} requests, ${taken["Txn"]} of them to lock; ${all} revisions`,
  );
  expect(Txn).toBeLessThanOrEqual((2 * LOCKS) / 20);
  expect(all).toBe(Txn);
  expect(revisions).toBe(taken["Txn"]);
  expect(others).toEqual({});
  expect(await placesOf(etcd.member, "many")).toEqual([]);
});

test("never more than four of these requests are at the server at a time", async () => {
  await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  const far = connect({ hosts: proxy.endpoint, requestTimeoutMs: 20_000, session: SESSION });
  await far.session();
  const rule = proxy.rule({ path: TXN, act: "hold" });

  const taking = Promise.all(manyOf(far).map((mutex) => mutex.lock()));
  await rule.hit(4);
  // A fifth request would have had the time of two round trips.
  await etcd.member.status();
  await etcd.member.status();
  expect(rule.hits).toBe(4);
  rule.release();
  await Promise.all((await taking).map((lock) => lock.release()));

  await far.close();
});

const manyOf = (far: Cluster) => Array.from({ length: LOCKS }, (_, n) => new Mutex(far, `four/${n}`));

test("refused one after the other, tryLock costs a request and no revision each; refused at once, less", async () => {
  const rounds = 100;
  const other = await Session.open(cluster, SESSION);
  const names = Array.from({ length: rounds }, (_, n) => `busy/${n}`);
  await Promise.all(names.map((name) => etcd.etcdctl(["put", `${name}/1`, "held"])));
  const busy = names.map((name) => new Mutex(other, name));
  const counted = await meter(etcd.member);

  for (const mutex of busy) expect(await mutex.tryLock()).toBeUndefined();
  expect(await counted.read()).toEqual({ Txn: rounds });

  const refused = await Promise.all(busy.map((mutex) => mutex.tryLock()));
  expect(refused.every((lock) => lock === undefined)).toBe(true);
  const { Txn = 0, ...more } = await counted.read();
  expect(Txn - rounds).toBeLessThanOrEqual(5);
  expect(more).toEqual({});
});
