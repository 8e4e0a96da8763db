// The requirements of etcd's lessor tests for other clients' leases and keys in a queue.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { abortOf, queued } from "../../support/clients/session-client.js";
import { grant, putOn, revoke, timeToLive } from "../../support/clients/lease-calls.js";

/** So long that no renewal falls into a test. */
const LONG_SECONDS = 90;

let etcd: EtcdCluster;
let cluster: Cluster;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);

describe("a lease with an ID that only others choose", () => {
  test("waits its turn and is waited for when the ID is negative", async () => {
    const name = "negative";
    const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
    const mutex = new Mutex(session, name);
    await grant(etcd.member, -5n, LONG_SECONDS);
    await putOn(etcd.member, -5n, `${name}/-5`);

    expect(await mutex.tryLock()).toBeUndefined();
    const late = await reasonOf(mutex.lock({ timeoutMs: 1000 }));
    const waiting = mutex.lock();
    await queued(etcd.member, name, 2);
    await revoke(etcd.member, -5n);
    const lock = await waiting;

    expect(late).toMatchObject({ ahead: 1, holder: { key: `${name}/-5`, leaseId: -5n } });
    expect(lock.held).toBe(true);
    await lock.release();
    await session.close();
  });

  test("is adopted and used when it is the highest there is", async () => {
    const leaseId = 2n ** 63n - 1n;
    await grant(etcd.member, leaseId, LONG_SECONDS);
    const session = await Session.adopt(cluster, leaseId);

    const lock = await new Mutex(session, "highest").lock();

    expect(lock.key).toBe("highest/7fffffffffffffff");
    expect((await timeToLive(etcd.member, leaseId)).keys).toEqual([lock.key]);
    await lock.release();
    await session.close();
    expect((await leasesOf(etcd.member)).has(leaseId)).toBe(false);
  });
});

describe("a lock whose key somebody has bound", () => {
  test.each([
    ["to another lease", 77n],
    ["to no lease", 0n],
  ])("%s is given back by its holder all the same", async (what, leaseId) => {
    const name = `bound/${what.replaceAll(" ", "-")}`;
    const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
    const lock = await new Mutex(session, name).lock();
    if (leaseId) await grant(etcd.member, leaseId, LONG_SECONDS);
    await putOn(etcd.member, leaseId, lock.key);

    await lock.release();

    expect(await places(name)).toEqual([]);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    if (leaseId) await revoke(etcd.member, leaseId);
    await session.close();
  });

  test("to another lease is lost with that lease, though the session lives", async () => {
    const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
    const lock = await new Mutex(session, "bound/lost").lock();
    await grant(etcd.member, 78n, LONG_SECONDS);
    await putOn(etcd.member, 78n, lock.key);

    await revoke(etcd.member, 78n);

    expect(await abortOf(lock.signal)).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    expect(session.state).toBe("live");
    await session.close();
  });
});
