import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, type Lock, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { isBatch } from "../../support/clients/request-shape.js";
import { placesOf } from "../../support/clients/server-view.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { meter } from "../../support/fixtures/spent.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";

const TXN = "/etcdserverpb.KV/Txn";
const SETTING = { requestTimeoutMs: 10_000, session: { ttlSeconds: 60 } };

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints, ...SETTING });
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

/** The first one is sent alone: the others share one batch. */
const lockAll = (source: Cluster | Session, names: readonly string[]) =>
  names.map((name) => new Mutex(source, name).lock());
const numbered = (prefix: string, count = 6) => Array.from({ length: count }, (_, n) => `${prefix}/${n}`);
const heldOf = (locks: readonly Lock[]) => locks.filter(({ held }) => held).map(({ name }) => name);
const givenBack = (locks: readonly Lock[]) => Promise.all(locks.map((lock) => lock.release()));

/** The outcome of each: the name of a held lock, or the code of an error. */
async function endsOf(locks: readonly Promise<Lock>[]): Promise<string[]> {
  const ends = await Promise.allSettled(locks);
  return ends.map((end) =>
    end.status === "fulfilled" ? end.value.name : (end.reason as { code: string }).code,
  );
}

test("with a password nobody shares a request: on any etcd a forbidden name is refused, in a crowd as alone", async () => {
  const users = await startWithUsers();
  const worker = connect({ hosts: users.endpoints, auth: WORKER, ...SETTING });
  const session = await worker.session();

  const ends = await endsOf(lockAll(session, ["jobs/a", "jobs/b", "other", "jobs/c", "job"]));

  expect(ends).toEqual(["jobs/a", "jobs/b", "ETCD_REFUSED", "jobs/c", "ETCD_REFUSED"]);
  await worker.close({ drainMs: 0 });
  await users.etcd.stop();
});

describe("of those who share a request", () => {
  test("one whose lease is gone loses its session; the others get their locks, each by a request of its own", async () => {
    const session = await cluster.session();
    const other = await Session.open(cluster);
    await etcd.etcdctl(["lease", "revoke", other.leaseId.toString(16)]);
    const counted = await meter(etcd.member);

    const taking = lockAll(session, numbered("dead"));
    const [lost] = lockAll(other, ["dead/x"]);
    const ends = await endsOf([...taking, lost!]);

    expect(ends).toEqual([...numbered("dead"), "SESSION_LOST"]);
    expect(await counted.read()).toMatchObject({ Txn: 1 + 1 + 6, revisions: 6 });
    await givenBack(await Promise.all(taking));
    await other.close();
  });

  test("one that etcd has no space for does not keep the others from giving their locks back", async () => {
    const session = await cluster.session();
    const locks = await Promise.all(lockAll(session, numbered("full")));
    await spaceAlarm(etcd.member, "ACTIVATE");
    try {
      const [ends] = await Promise.all([endsOf(lockAll(session, numbered("none"))), givenBack(locks)]);

      expect(await placesOf(etcd.member, "full")).toEqual([]);
      // Before 3.6, etcd counts nothing of a batch against its quota: every call in a batch gets its lock.
      const there = await placesOf(etcd.member, "none");
      expect(there).toHaveLength(ends.filter((end) => end !== "ETCD_REFUSED").length);
      expect(await endsOf(lockAll(session, ["none/alone"]))).toEqual(["ETCD_REFUSED"]);
    } finally {
      await spaceAlarm(etcd.member, "DEACTIVATE");
    }
    await session.close({ drainMs: 0 });
  });

  test("one whose session is closed ends with it, at once; the request goes on for the others", async () => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    const far = connect({ hosts: proxy.endpoint, ...SETTING });
    const session = await far.session();
    const other = await Session.open(far);
    const rule = proxy.rule({ path: TXN, act: "hold", when: isBatch });

    const taking = lockAll(session, numbered("stay"));
    const ending = endsOf(lockAll(other, ["stay/x"]));
    await rule.hit();
    await other.close({ drainMs: 0 });
    expect(await ending).toEqual(["SESSION_CLOSED"]);
    rule.release();

    // Its lease is gone: the batch is rejected, and the others are sent again individually.
    expect(heldOf(await Promise.all(taking))).toEqual(numbered("stay"));
    expect(await placesOf(etcd.member, "stay/x")).toEqual([]);
    expect([rule.hits, session.state]).toEqual([1, "live"]);
    await far.close({ drainMs: 0 });
  });

  test("one that gives up leaves no key behind and takes nobody along", async () => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    const far = connect({ hosts: proxy.endpoint, ...SETTING });
    const session = await far.session();
    const rule = proxy.rule({ path: TXN, act: "hold", when: isBatch });
    const caller = new AbortController();

    const taking = lockAll(session, numbered("many", 20));
    const leaving = new Mutex(session, "many/x").lock({ signal: caller.signal });
    await rule.hit();
    caller.abort(new Error("no time"));
    await expect(leaving).rejects.toBe(caller.signal.reason);
    rule.release();

    expect(heldOf(await Promise.all(taking))).toEqual(numbered("many", 20));
    await expect.poll(() => placesOf(etcd.member, "many/x"), { timeout: 5000 }).toEqual([]);
    expect(rule.hits).toBe(1);
    await far.close({ drainMs: 0 });
  });
});
