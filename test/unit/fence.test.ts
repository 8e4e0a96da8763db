import { describe, expect, test } from "vitest";
import { FenceGate, type Lock, StaleFenceError, whileHeld } from "../../src/index.js";
import { ExclusiveHoldHandle } from "../../src/lock/hold/hold.js";
import { LockTable } from "../../src/lock/queue/queue.js";
import { FakeCluster } from "../support/fakes/fake-connection.js";
import { expectMisuse, outOfRange, thrown, titled, wrongType } from "../support/fixtures/misuse.js";

const NEVER = String(Number.MAX_SAFE_INTEGER);

function heldLock(): Lock {
  const lease = new FakeCluster().lease();
  const queue = LockTable.of(lease).queue("jobs");
  const entry = queue.own.make().confirmed(2n ** 60n + 1n);
  return new ExclusiveHoldHandle(queue, entry);
}

describe("a fencing token", () => {
  const lock = heldLock();

  test("is the create revision of the lock's key", () => {
    expect(lock.fence).toBe(lock.revision);
  });

  test("is exact in JSON, where a number of its size would be rounded", () => {
    expect(JSON.parse(JSON.stringify(lock))).toEqual({
      turn: 1,
      name: "jobs",
      key: "jobs/77",
      revision: "1152921504606846977",
      fence: "1152921504606846977",
      held: true,
      remainingMs: lock.remainingMs(),
    });
  });

  test("guards a transaction of etcd by key and create revision", () => {
    expect(whileHeld(lock)).toEqual(["jobs/77", "Create", "==", "1152921504606846977"]);
  });

  test("guards nothing any more once its hold has ended: no key has such a create revision", () => {
    const released = heldLock();
    void released.release();
    const lost = heldLock() as ExclusiveHoldHandle;
    lost.exceeded(1000);

    for (const ended of [released, lost])
      expect(whileHeld(ended)).toEqual(["jobs/77", "Create", "==", NEVER]);
  });
});

describe("a fence gate", () => {
  test("admits a token that is as high as any before, again and again", () => {
    const gate = new FenceGate();

    for (const fence of [3n, 3n, 7n, 7n]) gate.admit(fence);

    expect(gate.highest).toBe(7n);
  });

  test("refuses a lower one, tells both, and stays where it was", () => {
    const gate = new FenceGate(7n);

    const error = thrown(() => gate.admit(6n));

    expect(error).toBeInstanceOf(StaleFenceError);
    expect(error).toMatchObject({ code: "STALE_FENCE", fence: 6n, highest: 7n });
    expect((error as Error).message).toMatch(/6.*7/);
    expect(gate.highest).toBe(7n);
  });

  test("admits everything at first, unless it is told what was admitted before", () => {
    expect(() => new FenceGate().admit(0n)).not.toThrow();
    expect(() => new FenceGate(2n ** 62n).admit(2n ** 62n - 1n)).toThrow(StaleFenceError);
  });
});

describe("assertHeld, FenceGate and whileHeld", () => {
  const lock = heldLock();
  const atLeast = "a number of milliseconds, 0 or more";
  const fence = "a bigint, as BigInt(text) gives";

  test.each(
    titled([
      wrongType("atLeastMs", atLeast, "100", '"100"'),
      wrongType("atLeastMs", atLeast, null),
      outOfRange("atLeastMs", atLeast, -1),
      outOfRange("atLeastMs", atLeast, NaN),
    ]),
  )("assertHeld throws for %s", (_, each) => {
    expectMisuse(
      thrown(() => lock.assertHeld(each.value as number)),
      each,
    );
  });

  test.each(
    titled([
      wrongType("fence", fence, 7),
      wrongType("fence", fence, "7", '"7"'),
      outOfRange("fence", "0n or more", -1n),
    ]),
  )("a gate throws for %s, and is as it was", (_, each) => {
    const gate = new FenceGate(5n);

    expectMisuse(
      thrown(() => gate.admit(each.value as bigint)),
      each,
    );
    expect(gate.highest).toBe(5n);
    expectMisuse(
      thrown(() => new FenceGate(each.value as bigint)),
      { ...each, option: "highest" },
    );
  });

  test.each(
    titled([
      wrongType("hold", "a hold", undefined),
      wrongType("hold.key", "a string", { revision: 7n }, "undefined"),
      wrongType("hold.revision", fence, { key: "jobs/77", revision: "7" }, '"7"'),
      outOfRange("hold.revision", "1n or more", { key: "jobs/77", revision: 0n }, "0n"),
    ]),
  )("whileHeld throws for %s", (_, each) => {
    expectMisuse(
      thrown(() => whileHeld(each.value as Lock)),
      each,
    );
  });
});
