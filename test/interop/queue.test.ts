import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { connect, Mutex, type Cluster, type Lock } from "../../src/index.js";
import { EtcdctlLock } from "../support/clients/etcdctl-lock.js";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { Observer } from "../lab/runner/observer.js";
import { V3Lock } from "../support/clients/v3lock.js";
import { Crew } from "../support/programs/workers.js";

const PATIENCE = { timeoutMs: 20_000 };
const NAME = "interop/job";

let etcd: EtcdCluster;
let observer: Observer;
let cluster: Cluster;
let mutex: Mutex;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());
beforeEach(async () => {
  const { revision } = await etcd.member.status();
  observer = new Observer(etcd.members, "interop/", revision + 1n);
  cluster = connect({ hosts: etcd.endpoints });
  mutex = new Mutex(cluster, NAME);
});
afterEach(async () => {
  await cluster.close({ drainMs: 0 });
  await observer.untilLiving("interop/", (count) => count === 0, PATIENCE);
  await observer.stop();
});

/** Resolves when the queue has `count` places, including the holder's. */
const queueOf = (count: number) => observer.untilLiving("interop/", (living) => living === count, PATIENCE);

/** Requests the lock; `holds` says whether it has been granted yet. */
function ask() {
  const asked = { holds: false, held: mutex.lock() };
  void asked.held.then(() => (asked.holds = true));
  return asked;
}

describe("with `etcdctl lock` on the same name", () => {
  it("leasehold waits until etcdctl gives the lock back", async () => {
    await using other = new EtcdctlLock(etcd, NAME);
    await other.held;
    const mine = ask();
    await queueOf(2);
    expect(mine.holds).toBe(false);

    await other.release();

    const lock = await mine.held;
    expect(await queueOf(1)).toEqual([lock.key]);
    await lock.release();
  });

  it("etcdctl waits until leasehold gives the lock back", async () => {
    const lock = await mutex.lock();
    await using other = new EtcdctlLock(etcd, NAME);
    await queueOf(2);
    expect(other.holds).toBe(false);

    await lock.release();

    expect(await other.held).toMatch(/^interop\/job\/[0-9a-f]+$/);
    expect(await mutex.tryLock()).toBeUndefined();
    await other.release();
  });

  it("leasehold gets the lock of an etcdctl that was killed -9, once its lease is over", async () => {
    await using other = new EtcdctlLock(etcd, NAME, { ttlSeconds: 2 });
    await other.held;
    const mine = ask();
    await queueOf(2);

    await other.kill();

    expect((await mine.held).held).toBe(true);
    await (await mine.held).release();
  });

  it("etcdctl gets the lock of a leasehold process that was killed -9, once its lease is over", async () => {
    await using crew = new Crew();
    const worker = await crew.start("holder");
    await worker.connect({ hosts: etcd.endpoints, session: { ttlSeconds: 2 } });
    await worker.lock(NAME, { as: "held" });
    await using other = new EtcdctlLock(etcd, NAME);
    await queueOf(2);

    await worker.kill();

    expect(await queueOf(1)).toEqual([await other.held]);
    await other.release();
  });
});

describe("with etcd's v3lock service on the same name", () => {
  it("leasehold waits until the service's client unlocks", async () => {
    const other = await V3Lock.ask(etcd.member, NAME);
    await other.held;
    const mine = ask();
    await queueOf(2);
    expect(mine.holds).toBe(false);

    await other.unlock();

    const lock = await mine.held;
    expect(await queueOf(1)).toEqual([lock.key]);
    await lock.release();
  });

  it("the service's client waits until leasehold gives the lock back", async () => {
    const lock = await mutex.lock();
    const other = await V3Lock.ask(etcd.member, NAME);
    await queueOf(2);
    expect(other.holds).toBe(false);

    await lock.release();

    expect(await other.held).toMatch(/^interop\/job\/[0-9a-f]+$/);
    expect(await mutex.tryLock()).toBeUndefined();
    await other.unlock();
  });

  it("leasehold gets the lock when the client's lease is revoked, or when it expires", async () => {
    const revoked = await V3Lock.ask(etcd.member, NAME);
    await revoked.held;
    const first = ask();
    await queueOf(2);
    await revoked.revoke();
    const lock = await first.held;

    const expiring = await V3Lock.ask(etcd.member, NAME, { ttlSeconds: 2 });
    await queueOf(2);
    const second = ask();
    await queueOf(3);
    await lock.release();
    await expiring.held;

    expect((await second.held).held).toBe(true);
    await (await second.held).release();
  });

  it("the service's client gets the lock of a leasehold process that was killed -9", async () => {
    await using crew = new Crew();
    const worker = await crew.start("holder");
    await worker.connect({ hosts: etcd.endpoints, session: { ttlSeconds: 2 } });
    await worker.lock(NAME, { as: "held" });
    const other = await V3Lock.ask(etcd.member, NAME);
    await queueOf(2);

    await worker.kill();

    expect(await queueOf(1)).toEqual([await other.held]);
    await other.unlock();
  });
});

describe("leasehold, etcdctl and v3lock in one queue", () => {
  it("are served in the order in which they came", async () => {
    const first = await mutex.lock();
    await using second = new EtcdctlLock(etcd, NAME);
    await queueOf(2);
    const third = ask();
    await queueOf(3);
    const fourth = await V3Lock.ask(etcd.member, NAME);
    await queueOf(4);
    await using fifth = new EtcdctlLock(etcd, NAME);
    await queueOf(5);
    const sixth = ask();
    const keys = await queueOf(6);
    const waiting = () => [second, third, fourth, fifth, sixth].filter(({ holds }) => !holds);

    await first.release();
    expect([first.key, await second.held]).toEqual(keys.slice(0, 2));
    expect(waiting()).toEqual([third, fourth, fifth, sixth]);
    await second.release();
    expect((await third.held).key).toBe(keys[2]);
    expect(waiting()).toEqual([fourth, fifth, sixth]);
    await (await third.held).release();
    expect(await fourth.held).toBe(keys[3]);
    expect(waiting()).toEqual([fifth, sixth]);
    await fourth.unlock();
    expect(await fifth.held).toBe(keys[4]);
    expect(waiting()).toEqual([sixth]);
    await fifth.release();
    const last: Lock = await sixth.held;
    expect(last.key).toBe(keys[5]);
    await last.release();
  });
});
