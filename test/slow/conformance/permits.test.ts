// The requirements of Curator's tests of its semaphore, on one server and on a cluster, and of kazoo's.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect, type Hold, Semaphore } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { type Client, openClient, queued } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

/** Much longer than a member is down. */
const TTL_SECONDS = 30;
const PERMITS = 3;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd.stop());
beforeEach(() => async () => {
  for (const member of etcd.members) if (!member.running) await member.restart();
});

const permitOf = ({ session }: Client, name: string) => new Semaphore(session, name, PERMITS);

/** Records the maximum number of simultaneous workers. */
class Workers {
  #now = 0;
  most = 0;
  readonly work = async (): Promise<void> => {
    this.most = Math.max(this.most, ++this.#now);
    await new Promise((resolve) => setImmediate(resolve));
    this.#now--;
  };
}

describe("twenty who share three permits", () => {
  test("are all served, three at a time, though the leader was killed while they were queueing", async () => {
    const name = "leader";
    await using first = await openClient(etcd.endpoints, TTL_SECONDS);
    await using second = await openClient(etcd.endpoints, TTL_SECONDS);
    const held: Hold[] = [];
    for (let i = 0; i < PERMITS; i++) held.push(await permitOf(first, name).acquire());
    const workers = new Workers();
    const working = Array.from({ length: 20 }, (_, i) =>
      permitOf(i % 2 ? first : second, name).withPermit(workers.work),
    );
    await queued(etcd.member, name, PERMITS + 20);

    await (await etcd.leader()).kill();
    await Promise.all(held.map((hold) => hold.release()));
    await Promise.all(working);

    expect(workers.most).toBeLessThanOrEqual(PERMITS);
    expect(held.map((hold) => hold.held)).toEqual([false, false, false]);
  });

  test("are all served, three at a time, though the only member that they know was away", async () => {
    const name = "away";
    const [member] = etcd.members as [(typeof etcd.members)[0]];
    await using first = await openClient(member.endpoint, TTL_SECONDS);
    await using second = await openClient(member.endpoint, TTL_SECONDS);
    const workers = new Workers();
    const hold = await permitOf(first, name).acquire();
    const working = Array.from({ length: 20 }, (_, i) =>
      permitOf(i % 2 ? first : second, name).withPermit(workers.work),
    );

    await member.kill();
    await member.restart();
    await Promise.all(working);

    expect(workers.most).toBeLessThanOrEqual(PERMITS);
    expect(hold.held).toBe(true);
    await hold.release();
    await expect.poll(() => placesOf(etcd.members[1]!, name)).toEqual([]);
  });
});

describe("a client", () => {
  test("that closes gives back the permits it held, to as many who wait", async () => {
    const name = "closes";
    const leaving = await openClient(etcd.endpoints, 3600);
    await using staying = await openClient(etcd.endpoints, TTL_SECONDS);
    for (let i = 0; i < PERMITS; i++) await permitOf(leaving, name).acquire();
    const waiting = Array.from({ length: PERMITS }, () => permitOf(staying, name).acquire());
    await queued(etcd.member, name, 2 * PERMITS);

    await leaving.cluster.close({ drainMs: 0 });

    const held = await Promise.all(waiting);
    expect(await permitOf(staying, name).tryAcquire()).toBeUndefined();
    await Promise.all(held.map((hold) => hold.release()));
  });

  test("whose session is lost while it waits is told so, and gets a permit in a new session when it asks again", async () => {
    const name = "session-loss";
    await using holder = await openClient(etcd.endpoints, TTL_SECONDS);
    await using cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
    const semaphore = new Semaphore(cluster, name, 1);
    const hold = await new Semaphore(holder.session, name, 1).acquire();
    const waiting = reasonOf(semaphore.acquire());
    await queued(etcd.member, name, 2);

    await revoke(etcd.member, (await cluster.session()).leaseId);
    expect(await waiting).toMatchObject({ code: "SESSION_LOST", loss: "revoked" });
    const again = semaphore.acquire();
    await queued(etcd.member, name, 2);
    expect(hold.held).toBe(true);
    await hold.release();

    await (await again).release();
  });

  test("that gave up may ask again, and takes its turn behind those who came meanwhile", async () => {
    const name = "again";
    await using first = await openClient(etcd.endpoints, TTL_SECONDS);
    await using second = await openClient(etcd.endpoints, TTL_SECONDS);
    const hold = await new Semaphore(first.session, name, 1).acquire();
    expect(await reasonOf(new Semaphore(second.session, name, 1).acquire({ timeoutMs: 50 }))).toMatchObject({
      code: "LOCK_TIMEOUT",
    });
    await queued(etcd.member, name, 1);
    const served: string[] = [];
    const other = new Semaphore(first.session, name, 1).withPermit(() => void served.push("other"));
    await queued(etcd.member, name, 2);
    const again = new Semaphore(second.session, name, 1).withPermit(() => void served.push("again"));
    await queued(etcd.member, name, 3);

    await hold.release();
    await Promise.all([other, again]);

    expect(served).toEqual(["other", "again"]);
  });
});
