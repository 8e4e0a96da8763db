// The requirements of Curator's and etcd's tests for the only server stopping and returning.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect, type Lock, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { deadlineOf, openClient, queued } from "../../support/clients/session-client.js";

/** Much longer than etcd is down. */
const TTL_SECONDS = 20;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());
beforeEach(() => async () => {
  if (!etcd.member.running) await etcd.member.restart();
});

const places = (name: string) => placesOf(etcd.member, name);
async function restart() {
  await etcd.member.kill();
  await etcd.member.restart();
}

describe("when etcd is killed and started again within the TTL,", () => {
  test("a lock is still held under the same key, is renewed, and goes with its session", async () => {
    const name = "restart/held";
    await using client = await openClient(etcd.endpoints, 6);
    const lock = await client.mutex(name).lock();
    const deadline = deadlineOf(client.session);
    await restart();

    await expect.poll(() => deadlineOf(client.session), { timeout: 6000 }).toBeGreaterThan(deadline + 50);
    expect(lock.held).toBe(true);
    expect((await places(name)).map(({ revision }) => revision)).toEqual([lock.fence]);
    await client.session.close({ drainMs: 0 });

    expect(await places(name)).toEqual([]);
    expect((await leasesOf(etcd.member)).has(client.session.leaseId)).toBe(false);
  });

  test("what was given back before stays free, and the next fence is higher", async () => {
    const name = "restart/free";
    await using client = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await client.mutex(name).lock();
    await client.session.close({ drainMs: 0 });
    await restart();

    await using next = await openClient(etcd.endpoints, TTL_SECONDS);
    const taken = await next.mutex(name).tryLock();

    expect(taken?.held).toBe(true);
    expect(taken?.fence).toBeGreaterThan(lock.fence);
  });

  test("the holder releases, and its waiter is served, as if nothing had been", async () => {
    const name = "restart/waiting";
    await using holder = await openClient(etcd.endpoints, TTL_SECONDS);
    await using waiter = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await holder.mutex(name).lock();
    const waiting = waiter.mutex(name).lock();
    await queued(etcd.member, name, 2);

    await restart();
    await lock.release();
    const next = await waiting;

    expect([next.held, next.fence > lock.fence]).toEqual([true, true]);
    expect([...holder.states, ...waiter.states]).not.toContain("lost");
    await next.release();
  });

  test("ten contenders are all served, one at a time, though it happened while they were queueing", async () => {
    const name = "restart/queueing";
    const clients = await Promise.all(
      Array.from({ length: 10 }, () => openClient(etcd.endpoints, TTL_SECONDS)),
    );
    const first = await clients[0]!.mutex(name).lock();
    let inside = 0;
    const most: number[] = [];
    const fences: bigint[] = [];
    const work = async ({ fence }: Lock) => {
      most.push(++inside);
      fences.push(fence);
      await places(name);
      inside--;
    };

    const all = clients.map((client) => client.mutex(name).withLock(work));
    // As soon as one of them has its place: the others are in flight.
    await expect.poll(async () => (await places(name)).length, { interval: 1 }).toBeGreaterThan(1);
    await restart();
    await first.release();
    await Promise.all(all);

    expect(most).toEqual(Array(10).fill(1));
    expect(fences).toEqual([...fences].sort((a, b) => (a < b ? -1 : 1)));
    await queued(etcd.member, name, 0);
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  });
});

describe("while etcd is away,", () => {
  test("a lock() waits for it, and is granted once, with one lease", async () => {
    const before = await leasesOf(etcd.member);
    await etcd.member.kill();
    await using cluster = connect({ hosts: etcd.endpoints });
    const waiting = new Mutex(cluster, "away/start").lock();

    await etcd.member.restart();
    const lock = await waiting;

    const { leaseId } = await cluster.session();
    expect([...(await leasesOf(etcd.member))].filter((id) => !before.has(id))).toEqual([leaseId]);
    expect(await places("away/start")).toEqual([{ key: lock.key, revision: lock.fence, leaseId }]);
    await lock.release();
  });

  test("a release waits for it, and leaves no key when it is back", async () => {
    const name = "away/release";
    await using client = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await client.mutex(name).lock();
    await etcd.member.kill();

    const released = lock.release();
    expect([lock.held, lock.signal.aborted]).toEqual([false, true]);
    await etcd.member.restart();
    await released;

    expect(await places(name)).toEqual([]);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
  });
});
