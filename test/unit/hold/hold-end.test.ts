import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { holdEndChannel } from "../../../src/telemetry/channels.js";
import type { HoldEndMessage } from "../../../src/telemetry/messages.js";
import { HoldHandle } from "../../../src/hold/hold.js";
import { NO_LOCK_OPTIONS } from "../../../src/options/lock.js";
import { LockTable } from "../../../src/queue/queue.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import { Published } from "../../support/fixtures/published.js";

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
