import { channel } from "node:diagnostics_channel";
import { describe, expect, test } from "vitest";
import { CHANNELS } from "../../../../src/base/telemetry/channels.js";
import { LockLostError } from "../../../../src/errors.js";
import { ExclusiveHoldHandle, HoldHandle } from "../../../../src/lock/hold/hold.js";
import { checkLock } from "../../../../src/base/options/lock.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";

const TTL_SECONDS = 60;
const DEADLINE_MS = 54_000;
const MAX_MS = 3000;
const GRACE_MS = 300;
const FENCE = 50n;
const DELETED = { header: HEADER, succeeded: true, ranges: [undefined] };
const GONE = { header: HEADER, succeeded: false, ranges: [] };
const LOSS = { code: "LOCK_LOST", loss: "max_hold" };

/** A lock that has just been granted. Its watch on the key is the business of other tests. */
function holding(options: object, Handle: typeof HoldHandle = HoldHandle) {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const queue = LockTable.of(lease).queue("jobs");
  const entry = queue.own.make().confirmed(FENCE);
  const timers = cluster.clock.timers;
  const lock = new Handle(queue, entry);
  lock.started({ kind: "writer", name: "jobs", options: checkLock("RwLock", options) });
  const deletions = () => cluster.connected.flatMap((member) => member.of("txn"));
  return {
    cluster,
    clock: cluster.clock,
    lease,
    lock,
    deletions,
    added: () => cluster.clock.timers - timers,
  };
}

/** The maximum has passed and its timer has run. */
function exceeded(options: object = {}) {
  const held = holding({ maxHoldMs: MAX_MS, maxHoldGraceMs: GRACE_MS, ...options });
  void held.lock.signal;
  held.clock.advance(MAX_MS + 1);
  return held;
}

describe("a hold with maxHoldMs", () => {
  test("has one timer more than one without, and none after its end", async () => {
    const none = holding({ label: "jobs" });
    const limited = holding({ maxHoldMs: MAX_MS, warnHoldMs: 5 });
    expect(limited.added() - none.added()).toBe(2);

    for (const { lock } of [none, limited]) void lock.release();
    await settle();

    expect(limited.added()).toBe(none.added());
  });

  test("has both its time and that of its session, whichever is shorter", () => {
    const { clock, lock, cluster } = holding({ maxHoldMs: MAX_MS });
    expect(lock.remainingMs()).toBe(MAX_MS);
    expect(() => lock.assertHeld(MAX_MS + 1)).toThrow("3000 ms left");

    clock.advance(MAX_MS - 1);
    expect([lock.held, lock.remainingMs()]).toEqual([true, 1]);

    expect(holding({ maxHoldMs: 3_600_000 }).lock.remainingMs()).toBe(DEADLINE_MS);
    expect(cluster.connected.flatMap((member) => member.of("txn"))).toEqual([]);
  });

  test("is lost when it has passed, and its key stays for the grace", async () => {
    const { clock, lock, lease, deletions } = exceeded();

    expect(lock.signal.reason).toMatchObject(LOSS);
    expect((lock.signal.reason as Error).message).toBe(
      `Lock "jobs" lost: it was held longer than its maxHoldMs of 3000 ms (key ${lock.key})`,
    );
    expect([lock.held, lock.remainingMs()]).toEqual([false, 0]);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
    await clock.pass(GRACE_MS - 1);
    expect(deletions()).toEqual([]);
    expect(lease.holds.has(lock)).toBe(true);

    await clock.pass(1);

    expect(deletions()).toMatchObject([
      { request: { compare: [{ kind: "created at", key: lock.key, revision: FENCE }] } },
    ]);
    deletions()[0]!.answer(DELETED);
    await settle();
    expect(lease.holds.has(lock)).toBe(false);
    expect(lease.state).toBe("live");
    await expect(lock.release()).rejects.toBe(lock.signal.reason);
  });

  test("is deleted at once when its holder releases it within the grace", async () => {
    const { clock, lock, deletions } = exceeded();

    const released = lock.release();
    await settle();
    expect(deletions()).toHaveLength(1);
    deletions()[0]!.answer(DELETED);

    await expect(released).rejects.toBe(lock.signal.reason);
    await clock.pass(GRACE_MS);
    expect(deletions()).toHaveLength(1);
  });

  test("may be released by the listener of its signal", async () => {
    const { clock, lock, deletions } = holding({ maxHoldMs: MAX_MS, maxHoldGraceMs: GRACE_MS });
    lock.signal.addEventListener("abort", () => void lock.release());

    clock.advance(MAX_MS + 1);
    await settle();
    expect(deletions()).toHaveLength(1);
    await clock.pass(GRACE_MS);

    expect(deletions()).toHaveLength(1);
  });

  test("has the whole grace after a listener that takes long", async () => {
    const { clock, lock, deletions } = holding({ maxHoldMs: MAX_MS, maxHoldGraceMs: GRACE_MS });
    lock.signal.addEventListener("abort", () => clock.freeze(GRACE_MS));

    clock.advance(MAX_MS + 1);
    await clock.pass(GRACE_MS - 1);
    expect(deletions()).toEqual([]);
    await clock.pass(1);

    expect(deletions()).toHaveLength(1);
  });

  test.each([
    ["held", (lock: HoldHandle) => expect(lock.held).toBe(false)],
    ["remainingMs", (lock: HoldHandle) => expect(lock.remainingMs()).toBe(0)],
    [
      "assertHeld",
      (lock: HoldHandle) => expect(() => lock.assertHeld()).toThrow("longer than its maxHoldMs"),
    ],
    ["refresh", (lock: HoldHandle) => lock.refresh()],
    ["release", (lock: HoldHandle) => void lock.release()],
  ])("after a pause of the process, %s applies it before any timer has run", (_, use) => {
    const { clock, lock } = holding({ maxHoldMs: MAX_MS });
    const { signal } = lock;

    clock.freeze(MAX_MS);
    expect(signal.aborted).toBe(false);
    use(lock);

    expect(signal.reason).toMatchObject(LOSS);
  });

  test("counts the grace from the abort, not from the maximum, when the process was paused", async () => {
    const { clock, lock, deletions } = holding({ maxHoldMs: MAX_MS, maxHoldGraceMs: GRACE_MS });

    clock.freeze(MAX_MS + 10 * GRACE_MS);
    expect(lock.held).toBe(false);
    await clock.pass(GRACE_MS - 1);
    expect(deletions()).toEqual([]);
    await clock.pass(1);

    expect(deletions()).toHaveLength(1);
  });

  test("is lost with its session when the deadline has passed as well", () => {
    const { clock, lock } = holding({ maxHoldMs: MAX_MS });

    clock.freeze(DEADLINE_MS);
    expect(lock.held).toBe(false);

    expect(lock.signal.reason).toMatchObject({ loss: "expired" });
  });

  test("does not count for a hold whose key is deleted at the same time and whose listener releases it", async () => {
    const { cluster, clock, lock, lease, deletions } = holding({ maxHoldMs: 500 });
    lock.signal.addEventListener("abort", () => void lock.release().catch(() => undefined));
    cluster.services.keepalive.renew = () => {};
    lock.keyDeleted();

    clock.freeze(600);
    lease.renewed(clock.now(), 10);
    await settle();

    expect(lock.signal.reason).toMatchObject({ loss: "deleted" });
    expect(deletions()).toEqual([]);
  });

  test("deletes nothing when the session ends within the grace", async () => {
    const { clock, lock, lease, deletions } = exceeded();

    lease.lose("revoked");
    await clock.pass(GRACE_MS);

    expect(deletions()).toEqual([]);
    await expect(lock.release()).rejects.toMatchObject(LOSS);
  });

  test("is no other loss when its key is missing at the end of the grace", async () => {
    const { clock, lock, deletions, cluster } = exceeded();
    await clock.pass(GRACE_MS);
    const released = lock.release();

    deletions()[0]!.answer(GONE);
    await settle();
    cluster.member.keepalives.at(-1)?.answer(LEASE_ID, TTL_SECONDS);

    await expect(released).rejects.toMatchObject(LOSS);
  });

  test("is not lost when it is released before", async () => {
    const { clock, lock, deletions } = holding({ maxHoldMs: MAX_MS });
    const released = lock.release();
    await settle();
    deletions()[0]!.answer(DELETED);
    await released;

    await clock.pass(2 * MAX_MS);

    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(deletions()).toHaveLength(1);
  });
});

describe("a hold with warnHoldMs", () => {
  /** The messages while `run` runs. */
  async function reported(run: () => Promise<unknown>): Promise<readonly unknown[]> {
    const messages: unknown[] = [];
    const hear = (message: unknown) => void messages.push(message);
    channel(CHANNELS.holdLong).subscribe(hear);
    try {
      await run();
      return messages;
    } finally {
      channel(CHANNELS.holdLong).unsubscribe(hear);
    }
  }

  test("is reported once, when it still lasts then", async () => {
    const { clock, lock, cluster } = holding({ warnHoldMs: 500, label: "jobs/:day" }, ExclusiveHoldHandle);

    expect(await reported(() => clock.pass(499))).toEqual([]);
    const messages = await reported(() => clock.pass(10_000));

    expect(messages).toEqual([
      {
        ...{ kind: "writer", name: "jobs", names: ["jobs"], label: "jobs/:day", owner: "owner" },
        ...{ hosts: cluster.services.options.hosts, leaseId: LEASE_ID, key: lock.key },
        ...{ revision: FENCE, fence: FENCE, heldMs: 500, warnHoldMs: 500 },
      },
    ]);
    expect((messages[0] as { hosts: unknown }).hosts).toBe(cluster.services.options.hosts);
    expect(lock.held).toBe(true);
  });

  test("is not reported after its end", async () => {
    const released = holding({ warnHoldMs: 500 });
    const lost = holding({ warnHoldMs: 500 });
    const overdue = holding({ warnHoldMs: 500, maxHoldMs: 400, maxHoldGraceMs: 1000 });

    void released.lock.release();
    lost.lease.lose("revoked");

    for (const { clock } of [released, lost, overdue]) {
      expect(await reported(() => clock.pass(1000))).toEqual([]);
    }
  });
});
