import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { LockExpiringError, LockLostError, LockReleasedError } from "../../../../src/errors.js";
import { UnansweredError } from "../../../../src/etcd/port.js";
import { HoldHandle } from "../../../../src/lock/hold/hold.js";
import { Session } from "../../../../src/lock/session/cluster.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { type FakeKeepalive, keyValue } from "../../../support/fakes/fake-member.js";

const TTL_SECONDS = 12;
const TTL_MS = TTL_SECONDS * 1000;
const FENCE = 50n;
const GONE = { header: HEADER, succeeded: false, ranges: [] };
const DELETED = { header: HEADER, succeeded: true, ranges: [undefined] };

/** A lock that has just been granted. `watched`: its key is watched from the start. */
function holding({ watched = false } = {}) {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const entry = LockTable.of(lease).queue("jobs").own.make().confirmed(FENCE);
  const lock = new HoldHandle(LockTable.of(lease).queue("jobs"), entry, watched);
  cluster.clock.advance(0);
  const answerRead = async (there: boolean) => {
    const kvs = there ? [keyValue({ key: entry.key, createRevision: FENCE, leaseId: LEASE_ID })] : [];
    cluster.member
      .of("range")
      .at(-1)!
      .answer({ header: cluster.member.header, kvs, more: false, count: kvs.length });
    await settle();
  };
  const renewed = () => cluster.member.keepalives.at(-1)!.answer(LEASE_ID, TTL_SECONDS);
  return { cluster, clock: cluster.clock, lease, place: entry, lock, answerRead, renewed };
}

describe("a held lock", () => {
  test("is in doubt, not lost, while only the clock that counts suspend says so", () => {
    const { clock, lock, renewed } = holding();

    clock.sleep(3_600_000);
    expect([lock.held, lock.signal.aborted, lock.remainingMs()]).toEqual([false, false, 0]);
    expect(() => lock.assertHeld()).toThrow(LockExpiringError);

    renewed();
    expect([lock.held, lock.signal.aborted]).toEqual([true, false]);
    expect(() => lock.assertHeld()).not.toThrow();
  });

  test("has its signal aborted in the first line after a pause, and so has its session", () => {
    const { clock, lock } = holding();
    const other = holding();
    const session = Reflect.construct(Session, [other.lease]) as Session;

    clock.freeze(TTL_MS);
    other.clock.freeze(TTL_MS);

    expect(lock.signal.aborted).toBe(true);
    expect(session.signal.aborted).toBe(true);
  });

  test("is never held again after its signal has aborted", () => {
    const { clock, lock, cluster } = holding();
    clock.advance(TTL_MS / 3);
    const stream = cluster.member.keepalives[0]!;

    clock.freeze(TTL_MS);
    expect([lock.held, lock.signal.aborted]).toEqual([false, true]);
    stream.answer(LEASE_ID, TTL_SECONDS);

    expect(lock.held).toBe(false);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
    expect(lock.signal.reason).toMatchObject({ loss: "expired", cause: { code: "SESSION_LOST" } });
  });

  test("tells with assertHeld when less time is left than asked for", () => {
    const { clock, lock } = holding();

    clock.advance(TTL_MS / 4);

    expect(() => lock.assertHeld(0.6 * TTL_MS)).not.toThrow();
    expect(() => lock.assertHeld(0.7 * TTL_MS)).toThrow(LockExpiringError);
  });

  test("has a signal that is aborted already when somebody asks for it after the end", async () => {
    const { cluster, lock } = holding();

    const released = lock.release();
    await settle();
    cluster.member.of("txn")[0]!.answer(DELETED);
    await released;

    expect(lock.signal.reason).toBeInstanceOf(LockReleasedError);
  });
});

describe("a held lock whose key is gone after the machine was suspended for longer than its TTL", () => {
  async function resumed() {
    const { lock, clock, lease, renewed } = holding();
    clock.sleep(2 * TTL_MS);
    lock.keyDeleted();
    await settle();
    return { lock, clock, lease, renewed };
  }
  const EXPIRED = {
    ...{ code: "LOCK_LOST", loss: "expired" },
    cause: {
      code: "SESSION_LOST",
      message: expect.stringContaining("did not run for at least 24 s") as unknown,
    },
  };

  test("counts as expired, not as deleted by another client, when no renewal is answered", async () => {
    const { lock, clock, lease } = await resumed();
    expect(lock.signal.aborted).toBe(true);
    clock.advance(lease.patienceMs);
    await settle();

    expect(lock.signal.reason).toMatchObject(EXPIRED);
    expect(lease.signal.aborted).toBe(false);
  });

  test("counts as expired when it is released before a renewal is answered", async () => {
    const { lock, clock, lease } = await resumed();

    const released = lock.release();
    await clock.pass(lease.patienceMs);
    await expect(released).rejects.toMatchObject(EXPIRED);
  });

  test("counts as deleted once a renewal shows that the lease lives", async () => {
    const { lock, renewed } = await resumed();
    renewed();
    await settle();

    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });
});

describe("release", () => {
  test("ends the hold before it returns, and is done when etcd has confirmed", async () => {
    const { cluster, lock } = holding();
    const aborted: unknown[] = [];
    lock.signal.addEventListener("abort", () => aborted.push(lock.signal.reason));
    let done = false;

    void lock.release().then(() => (done = true));
    expect([lock.held, lock.remainingMs(), aborted.length]).toEqual([false, 0, 1]);
    await settle();
    expect(done).toBe(false);
    cluster.member.of("txn")[0]!.answer(DELETED);
    await settle();

    expect(done).toBe(true);
    expect(cluster.member.of("txn")[0]!.request).toMatchObject({
      compare: [{ kind: "created at", key: lock.key, revision: FENCE }],
    });
  });

  test("rejects with the loss that the signal has, although its cause is not known yet, and deletes nothing", async () => {
    const { cluster, clock, lock, lease, answerRead } = holding();
    clock.advance(1001);
    cluster.member.watches[0]!.created(lock.key, 90n);
    await settle();
    const { signal } = lock;
    const heldWhenAborted: boolean[] = [];
    signal.addEventListener("abort", () => heldWhenAborted.push(lock.held));
    await answerRead(false);
    expect([lock.held, signal.aborted, heldWhenAborted]).toEqual([false, true, [false]]);

    const released = lock.release();
    await clock.pass(lease.patienceMs);
    await expect(released).rejects.toMatchObject({ code: "LOCK_LOST", loss: "deleted" });

    expect(cluster.connected.flatMap((member) => member.of("txn"))).toEqual([]);
  });

  /** etcd answers the delete only with: the key does not exist. */
  async function foundGone() {
    const { cluster, lock, lease } = holding();
    const released = lock.release();
    await settle();
    cluster.member.of("txn")[0]!.answer(GONE);
    await settle();
    return { lease, released, stream: cluster.member.keepalives.at(-1)! };
  }

  test("rejects with the loss when the key was deleted while the lease lives", async () => {
    const { stream, released } = await foundGone();

    stream.answer(LEASE_ID, TTL_SECONDS);

    await expect(released).rejects.toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });

  test("resolves then where requests are sent twice: the first of the two may have deleted the key", async () => {
    const { stream, released, lease } = await foundGone();
    lease.services.path.requestsAreRepeated = true;

    stream.answer(LEASE_ID, TTL_SECONDS);

    await expect(released).resolves.toBeUndefined();
  });

  test("rejects with the loss when the key is gone together with its lease", async () => {
    const { stream, released, lease } = await foundGone();

    stream.answer(LEASE_ID, 0);

    await expect(released).rejects.toMatchObject({
      code: "LOCK_LOST",
      loss: "revoked",
      cause: lease.signal.reason as Error,
    });
  });

  test("rejects with the loss when the key is gone and the state of the lease is unknown", async () => {
    const { cluster, clock, lock } = holding();
    const released = lock.release();
    await settle();
    cluster.member.of("txn")[0]!.answer(GONE);

    released.catch(() => undefined);
    await clock.pass(TTL_MS / 6);

    await expect(released).rejects.toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });

  test("resolves when the key is gone after an attempt whose answer was lost: that attempt deleted it", async () => {
    const { cluster, clock, lock } = holding();

    const released = lock.release();
    await settle();
    cluster.member.of("txn")[0]!.fail(new UnansweredError("connection reset"));
    await clock.pass(100);
    cluster.member.of("txn")[0]!.answer(GONE);

    await expect(released).resolves.toBeUndefined();
  });

  test("is done at the end of the lease when etcd never answers", async () => {
    const { clock, lock } = holding();
    let done = false;

    void lock.release().then(() => (done = true));
    await clock.pass(TTL_MS);

    expect(done).toBe(true);
    expect(lock.signal.reason).toBeInstanceOf(LockReleasedError);
  });

  test("of a lock whose deadline has passed unseen is a loss, and asks nothing of etcd", async () => {
    const { cluster, clock, lock } = holding();

    clock.freeze(TTL_MS);

    await expect(lock.release()).rejects.toMatchObject({ code: "LOCK_LOST", loss: "expired" });
    expect(cluster.connected.flatMap((member) => member.of("txn"))).toEqual([]);
  });
});

describe("the key of a held lock", () => {
  test("is not watched during a hold of less than a second", async () => {
    const { cluster, clock, lock } = holding();

    clock.advance(999);
    void lock.release();
    await clock.pass(1000);

    expect(cluster.connected.flatMap(({ watches }) => watches)).toEqual([]);
  });

  test("is watched in a longer hold, and read once the watch is there: it may have been deleted before", async () => {
    const { cluster, clock, lock, place: entry, answerRead, renewed } = holding();

    clock.advance(1001);
    const [stream] = cluster.member.watches;
    expect(stream!.creates).toMatchObject([{ key: entry.key, startRevision: 0n, events: "DELETE" }]);
    stream!.created(entry.key, 90n);
    await settle();
    expect(lock.held).toBe(true);
    await answerRead(false);
    expect(lock.held).toBe(false);
    renewed();
    await settle();

    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });

  test("that is deleted ends the hold at once; a deletion from its earlier life does not", async () => {
    const { cluster, clock, lock, place: entry, answerRead, renewed } = holding();
    clock.advance(1001);
    const [stream] = cluster.member.watches;
    stream!.created(entry.key, 90n);
    await settle();
    await answerRead(true);

    stream!.deleted(entry.key, FENCE - 1n);
    expect(lock.held).toBe(true);
    stream!.deleted(entry.key, 95n);
    expect(lock.held).toBe(false);
    renewed();
    await settle();

    expect(lock.signal.reason).toMatchObject({ loss: "deleted" });
  });

  test.each([
    ["its lease went with it", (stream: FakeKeepalive) => stream.answer(LEASE_ID, 0), "revoked"],
    ["etcd does not answer", () => {}, "deleted"],
  ])("that is deleted is told as %s", async (_, answer, loss) => {
    const { cluster, clock, lock, place: entry } = holding();
    clock.advance(1001);
    const [stream] = cluster.member.watches;
    stream!.created(entry.key, 90n);

    stream!.deleted(entry.key, 95n);
    answer(cluster.member.keepalives[0]!);
    await clock.pass(TTL_MS / 6);

    expect(lock.signal.reason).toMatchObject({ loss });
  });

  test("is watched from the grant on where its user wants that, by one watch", async () => {
    const { cluster, clock, lock, place: entry, answerRead, renewed } = holding({ watched: true });
    cluster.member.watches[0]!.created(entry.key, 90n);
    await settle();
    await answerRead(true);
    await clock.pass(2000);
    expect(lock.held).toBe(true);
    expect(cluster.member.of("range")).toHaveLength(1);
    expect(cluster.member.watches[0]!.creates).toHaveLength(1);

    cluster.member.watches[0]!.deleted(entry.key, 95n);
    expect(lock.held).toBe(false);
    renewed();
    await settle();

    expect(lock.signal.reason).toMatchObject({ loss: "deleted" });
  });

  test("is watched and read again when the stream moves to another member", async () => {
    const { cluster, clock, lock, place: entry, answerRead, renewed } = holding();
    clock.advance(1001);
    cluster.member.watches[0]!.created(entry.key, 90n);
    await settle();
    await answerRead(true);

    cluster.member.watches[0]!.end();
    await clock.pass(500);
    cluster.member.watches[0]!.created(entry.key, 96n);
    await settle();
    await answerRead(false);
    renewed();
    await settle();

    expect(cluster.member.host).toBe("b:1");
    expect(lock.signal.reason).toMatchObject({ loss: "deleted" });
  });
});

describe("the signal of a lock and another one", () => {
  const listeners = (signal: AbortSignal) => getEventListeners(signal, "abort").length;

  test("aborts with the end of the hold, and leaves nothing at the other one", async () => {
    const { lock } = holding();
    const stop = new AbortController();

    const both = lock.signalWith(stop.signal);
    expect([both.aborted, lock.signalWith(stop.signal) === both, listeners(stop.signal)]).toEqual([
      false,
      true,
      1,
    ]);
    void lock.release();

    expect(both.reason).toBe(lock.signal.reason);
    expect(both.reason).toBeInstanceOf(LockReleasedError);
    expect([listeners(stop.signal), listeners(lock.signal)]).toEqual([0, 0]);
    expect(lock.signalWith(stop.signal)).toBe(lock.signal);
    await settle();
  });

  test("aborts with the other one, and leaves nothing at the lock's, which has not aborted", () => {
    const { lock } = holding();
    const stop = new AbortController();

    const both = lock.signalWith(stop.signal);
    stop.abort("enough");

    expect([both.reason, lock.signal.aborted, lock.held]).toEqual(["enough", false, true]);
    expect([listeners(stop.signal), listeners(lock.signal)]).toEqual([0, 0]);
    expect(lock.signalWith(stop.signal)).toBe(stop.signal);
  });

  test("has the error of a loss as its reason, in the first line after a pause too", () => {
    const { clock, lock } = holding();
    const both = lock.signalWith(new AbortController().signal);

    clock.freeze(TTL_MS);

    expect(lock.signalWith(new AbortController().signal)).toBe(lock.signal);
    expect(both.reason).toBeInstanceOf(LockLostError);
  });

  test("is a TypeError if the other one is none", () => {
    const { lock } = holding();

    for (const none of [undefined, null, {}, new AbortController()])
      expect(() => lock.signalWith(none as AbortSignal)).toThrow(TypeError);
  });
});
