import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { holdEndChannel } from "../../../../src/base/telemetry/channels.js";
import type { HoldEndMessage } from "../../../../src/base/telemetry/messages.js";
import { HoldHandle } from "../../../../src/lock/hold/hold.js";
import { enclosingConflict, HeldScope } from "../../../../src/lock/hold/reentrancy.js";
import { NO_LOCK_OPTIONS } from "../../../../src/base/options/lock.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { Published } from "../../../support/fixtures/published.js";

const ABOUT = { kind: "mutex", name: "jobs", options: NO_LOCK_OPTIONS } as const;
const GONE = { header: HEADER, succeeded: false, ranges: [] };
const DELETED = { header: HEADER, succeeded: true, ranges: [undefined] };

function holding() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(12);
  const queue = LockTable.of(lease).queue("jobs");
  const lock = new HoldHandle(queue, queue.own.make().confirmed(50n));
  return { cluster, clock: cluster.clock, lease, lock };
}

describe("the end of a hold", () => {
  let ends: Published<HoldEndMessage>;
  beforeEach(() => void (ends = new Published(holdEndChannel)));
  afterEach(() => ends[Symbol.dispose]());

  test("by a release is published with its answer, which does not count as held", async () => {
    const { cluster, clock, lock } = holding();
    lock.started(ABOUT);
    clock.advance(300);
    const released = lock.release();
    clock.advance(200);
    await settle();
    expect(ends.messages).toEqual([]);

    cluster.member.of("txn").at(-1)!.answer(DELETED);
    await released;

    expect(ends.messages).toMatchObject([{ reason: "released", heldMs: 300, error: undefined }]);
  });

  test("by a release that finds no key is a loss", async () => {
    const { cluster, clock, lease, lock } = holding();
    lock.started(ABOUT);
    const released = lock.release();
    await settle();
    cluster.member.of("txn").at(-1)!.answer(GONE);
    await settle();
    clock.advance(lease.patienceMs);

    const loss: unknown = await released.catch((error: unknown) => error);

    expect(loss).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    expect(ends.messages).toMatchObject([{ reason: "deleted", error: loss }]);
  });

  test("that comes before its caller gets it is published when the caller does", () => {
    const { lease, lock } = holding();
    lease.lose("revoked");
    expect(ends.messages).toEqual([]);

    lock.started(ABOUT);

    expect(ends.messages).toMatchObject([{ reason: "revoked", heldMs: 0 }]);
  });

  test("has no event if no caller got it, and no second one", () => {
    const [unwanted, lost] = [holding(), holding()];
    lost.lock.started(ABOUT);

    for (const { lease } of [unwanted, lost]) lease.lose("revoked");
    lost.lock.ended("closed", undefined);

    expect(ends.messages).toHaveLength(1);
  });

  test("can have a reason that is no loss", () => {
    const { lock } = holding();
    lock.started(ABOUT);

    lock.ended("max_hold", undefined, 7);
    void lock.release();

    expect(ends.messages).toMatchObject([{ reason: "max_hold", heldMs: 7 }]);
  });
});

describe("a loss that nothing reports", () => {
  const warnings: (Error & { code?: string })[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  const lost = (used?: (lock: HoldHandle) => unknown) => {
    const { lease, lock } = holding();
    lock.started(ABOUT);
    used?.(lock);
    return { lease, lock };
  };
  /** Node.js emits a warning in the next tick. */
  const emitted = () => new Promise((resolve) => setImmediate(resolve));
  beforeEach(() => {
    warnings.length = 0;
    process.on("warning", warned);
  });
  afterEach(() => process.off("warning", warned));

  test("is a warning of one line, for all holds that end with one session", async () => {
    const { lease } = lost();
    const queue = LockTable.of(lease).queue("more");
    const other = new HoldHandle(queue, queue.own.make().confirmed(51n));
    other.started({ ...ABOUT, name: "more" });

    lease.lose("revoked");
    await emitted();

    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatchObject({ name: "LeaseholdWarning", code: "LOCK_LOST" });
    expect(warnings[0]!.message).toMatch(/^Lock "jobs" lost: [^\n]*log: console[^\n]*$/);
  });

  test("is a warning, too, if only other calls inside its withLock have looked whether it goes on", async () => {
    const { lease, lock } = lost();
    const cluster = {};

    const work = new HeldScope(cluster, lock).enter(async () => {
      expect(enclosingConflict(cluster, "another")).toBeUndefined();
      expect(enclosingConflict(cluster, "jobs")).toBe("jobs");
      lease.lose("revoked");
      expect(enclosingConflict(cluster, "jobs")).toBeUndefined();
      await emitted();
    });

    await expect(work).rejects.toMatchObject({ code: "LOCK_LOST" });
    expect(warnings).toMatchObject([{ code: "LOCK_LOST" }]);
  });

  test.each([
    ["somebody uses its signal", (lock: HoldHandle) => lock.signal],
    ["it was released before", (lock: HoldHandle) => void lock.release()],
  ])("is none if %s", async (_, used) => {
    const { lease } = lost(used);

    lease.lose("revoked");
    await emitted();

    expect(warnings).toEqual([]);
  });

  test("is none if its caller gets it in the microtasks after the loss, and uses its signal", async () => {
    const { lease, lock } = lost();

    lease.lose("revoked");
    for (let n = 0; n < 10; n++) await Promise.resolve();
    expect(lock.signal.aborted).toBe(true);
    await emitted();

    expect(warnings).toEqual([]);
  });

  test("has no warning if its own process closes the session, or somebody subscribes to the ends of holds", async () => {
    const [closed, subscribed] = [lost(), lost()];
    closed.lease.close(0).catch(() => undefined);
    await emitted();
    const ends = new Published(holdEndChannel);
    subscribed.lease.lose("revoked");
    await emitted();
    ends[Symbol.dispose]();

    expect([warnings, ends.messages.length]).toEqual([[], 1]);
  });
});
