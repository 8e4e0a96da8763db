import { describe, expect, test } from "vitest";
import type { LockKind } from "../../../../src/kinds.js";
import { exclusive, reader } from "../../../../src/lock/queue/lock-mode.js";
import { permit, weighted } from "../../../../src/lock/queue/permit-mode.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { QueueEntry } from "../../../../src/lock/queue/entry.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";
import { MINE, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

const lease = new FakeCluster().lease();
const OURS = '{"owner":"host:1","since":"2026-01-02T03:04:05.678Z","id":"1q2w3e"}';
const PERMIT = OURS.replace("}", ',"permits":3}');
const WEIGHTED = OURS.replace("}", ',"weighted":{"permits":3,"weight":1}}');

/** An entry of another session, by its create revision. */
const other = (createRevision: bigint, value: string, folder = "") =>
  keyValue({
    key: `jobs${folder}/${createRevision.toString(16)}`,
    ...{ createRevision, modRevision: createRevision, leaseId: createRevision, value },
  });
const told = (...kvs: readonly ReturnType<typeof keyValue>[]) => [{ kvs, more: false, count: kvs.length }];

const entryAt = (revision: bigint, kind: LockKind, mode = exclusive) =>
  new QueueEntry({ lease, name: "jobs", n: 1, mode, kind }).confirmed(revision);

describe("an answer", () => {
  const mine = entryAt(50n, "mutex");

  test.each([
    ["shows nothing before it", []],
    ["shows an entry of its kind", [other(40n, OURS)]],
    ["shows one of no kind that is known", [other(40n, "")]],
    ["shows readers and writers", [other(40n, OURS, "/read"), other(30n, OURS, "/write")]],
    ["shows another kind behind it", [other(60n, PERMIT)]],
    ["shows another kind that came after one of its own", [other(40n, PERMIT), other(30n, OURS)]],
    ["shows one of its kind just before it, whatever else", [other(40n, OURS), other(30n, PERMIT)]],
    ["shows a key that is no entry", [keyValue({ key: "jobs/config", createRevision: 9n, value: "x" })]],
  ])("rejects no call if it %s", (_, kvs) => {
    expect(mine.mismatchIn(told(...kvs), true)).toBeUndefined();
    expect(mine.mismatchIn(told(...kvs), false)).toBeUndefined();
  });

  test("rejects a call that would wait for another kind, by kind and name", () => {
    expect(mine.mismatchIn(told(other(30n, OURS), other(40n, PERMIT)), false)).toBeUndefined();
    expect(mine.mismatchIn(told(other(30n, ""), other(40n, PERMIT)), false)).toMatchObject({
      ...{ lockName: "jobs", kind: "mutex", found: "permit", foundName: "jobs" },
    });
  });

  test("rejects a call that would wait for a nested name, also if it came after an entry of our kind", () => {
    expect(mine.mismatchIn(told(other(40n, OURS, "/17"), other(30n, OURS)), true)).toMatchObject({
      ...{ found: "mutex", foundName: "jobs/17" },
    });
  });

  test("rejects a permit that joins behind any other entry: the permit would be counted beside it", () => {
    const mode = permit(3);
    const joining = entryAt(50n, "permit", mode);
    const heavy = entryAt(50n, "weighted", weighted(3, 2));

    expect(joining.mismatchIn(told(other(40n, PERMIT), other(30n, PERMIT)), true)).toBeUndefined();
    for (const value of ["", OURS, "a value"]) {
      expect(joining.mismatchIn(told(other(40n, value), other(30n, PERMIT)), true)).toBeDefined();
      expect(joining.mismatchIn(told(other(40n, PERMIT), other(30n, value)), true)).toBeDefined();
      expect(heavy.mismatchIn(told(other(40n, value), other(30n, WEIGHTED)), true)).toBeDefined();
      expect(heavy.mismatchIn(told(other(40n, WEIGHTED), other(30n, value)), true)).toBeDefined();
    }
    expect(heavy.mismatchIn(told(other(40n, WEIGHTED), other(30n, WEIGHTED)), true)).toBeUndefined();
    expect(heavy.mismatchIn(told(other(40n, PERMIT)), true)).toMatchObject({ found: "permit" });
    expect(joining.mismatchIn(told(other(40n, WEIGHTED)), true)).toMatchObject({ found: "weighted" });
    // A permit that waits already is not rejected for a call that will be.
    expect(joining.mismatchIn(told(other(40n, OURS), other(30n, PERMIT)), false)).toBeUndefined();
  });

  test("rejects no reader for an entry of its own session that leaves, and one for an entry that stays", () => {
    const { own } = LockTable.of(lease).queue("jobs");
    const staying = own.make({ mode: permit(2), kind: "permit" }).confirmed(40n);
    own.add(staying);
    const { key, value } = staying;
    const answer = told(keyValue({ key, value, createRevision: 40n, leaseId: lease.leaseId }));
    const reading = entryAt(50n, "reader", reader);

    expect(reading.mismatchIn(answer, true)).toMatchObject({ found: "permit" });
    expect(own.mismatch("reader", own.joined)).toMatchObject({ found: "permit" });
    staying.leaves();
    expect(reading.mismatchIn(answer, true)).toBeUndefined();
    expect(own.mismatch("reader", own.joined)).toBeUndefined();
  });
});

describe("a waiter", () => {
  test("fails when a read shows that it waits for another kind, and reads no more", async () => {
    const waiter = new WaitingTurn({ ahead: 1 });
    await waiter.watched();
    const mine = keyValue({ key: waiter.entry.key, createRevision: MINE, modRevision: MINE });

    const kvs = [mine, other(40n, PERMIT)];
    waiter.reads[0]!.answer({ header: { ...HEADER, revision: WATCHED }, kvs, more: false, count: 2 });
    await waiter.clock.pass(1000);

    expect(waiter.told).toHaveLength(1);
    expect(waiter.told[0]).toMatch(/^failed Cannot use "jobs" for a Mutex: .* by a Semaphore/);
    expect(waiter.reads).toHaveLength(1);
  });

  test("for a permit fails instead of holding beside another kind, though enough permits are free", async () => {
    const waiter = new WaitingTurn({ ahead: 1 }, permit(3));
    await waiter.watched();
    const mine = keyValue({ key: waiter.entry.key, createRevision: MINE, modRevision: MINE });

    const kvs = [mine, other(40n, ""), other(30n, PERMIT)];
    waiter.reads[0]!.answer({ header: { ...HEADER, revision: WATCHED }, kvs, more: false, count: 3 });
    await waiter.clock.pass(1000);

    expect(waiter.told).toHaveLength(1);
    expect(waiter.told[0]).toMatch(/^failed Cannot use "jobs" for a Semaphore/);
  });
});
