import { describe, expect, test } from "vitest";
import type { LeaseListener } from "../../../../src/etcd/keepalive.js";
import { UnansweredError } from "../../../../src/etcd/port.js";
import {
  delayedBy,
  delayedLease,
  delayKeyOf,
  delayLeaseOf,
  isDelayed,
  plainLease,
} from "../../../../src/keys.js";
import { checkSession } from "../../../../src/base/options/check.js";
import { QueueEntry } from "../../../../src/lock/queue/entry.js";
import { exclusive, GRANTED, reader, writer } from "../../../../src/lock/queue/lock-mode.js";
import { permit, weighted } from "../../../../src/lock/queue/permit-mode.js";
import { byAge, withoutDelayKeys } from "../../../../src/lock/queue/seen-entry.js";
import { joinTxn, leaveTxn } from "../../../../src/lock/queue/txns.js";
import { delayOf, delayTtlSeconds } from "../../../../src/lock/session/delay-lease.js";
import { Lease } from "../../../../src/lock/session/lease.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const LEASE = delayedLease(0x1234n);
const DELAY_MS = 1500;

function leaseOf(cluster = new FakeCluster()): Lease {
  const delay = { delayMs: DELAY_MS, ttlSeconds: delayTtlSeconds(10, DELAY_MS) };
  return new Lease(
    cluster.state,
    { leaseId: LEASE, ttlSeconds: 10, sent: cluster.clock.now(), delay },
    "owner",
  );
}

describe("the lease of a session with a delay", () => {
  test("has an ID that no other lease of this library has", () => {
    const MOST = (1n << 63n) - 1n;
    for (const id of [1n, 0x1234n, 1n << 62n, MOST, MOST - 1n]) {
      expect(isDelayed(delayedLease(id)), id.toString(16)).toBe(true);
      expect(isDelayed(plainLease(id)), id.toString(16)).toBe(false);
      expect(plainLease(id)).toBeGreaterThan(0n);
      expect(delayedBy(`name/${(plainLease(id) | 1n).toString(16)}`)).toBeUndefined();
    }
    expect(isDelayed(LEASE)).toBe(true);
    expect([0x77n, 0x78n, delayLeaseOf(LEASE), -LEASE].map((id) => isDelayed(id))).toEqual([
      ...[false, false, false, false],
    ]);
    expect(LEASE.toString(16)).toHaveLength(16);
  });

  test("is renewed after its delay lease, also on a new stream", () => {
    const cluster = new FakeCluster();
    const lease = leaseOf(cluster);
    lease.renew();
    const sent = () =>
      cluster.member.keepalives.at(-1)?.renewals.map((id) => (id === LEASE ? "own" : "delay"));
    expect(sent()).toEqual(["delay", "own"]);
    lease.renew();
    expect(sent()).toEqual(["delay", "own", "delay", "own"]);
    // As after a failure, it renews all leases in one order, whatever came first.
    cluster.services.keepalive.detach(lease.delay as LeaseListener);
    lease.renew();
    cluster.client.pool.fail(cluster.member, new UnansweredError("gone"));
    cluster.clock.advance(1000);
    expect(sent()?.slice(0, 2)).toEqual(["delay", "own"]);
  });

  test("lasts for the delay and a second less than its delay lease, in whole seconds", () => {
    expect([0, 1, 1000, 1500].map((ms) => delayTtlSeconds(10, ms))).toEqual([11, 12, 12, 13]);
    expect(delayOf(10, 13)).toEqual({ delayMs: 2000, ttlSeconds: 13 });
  });

  test("takes no new calls once the delay lease is gone, and goes on", () => {
    const lease = leaseOf();
    expect([lease.open, lease.state]).toEqual([true, "live"]);
    lease.delay?.leaseNotFound();
    expect([lease.open, lease.unfit, lease.state]).toEqual([false, true, "live"]);
    expect(() => lease.assertOpen()).toThrow("takes no new calls: its lease for releaseDelayMs is gone");
  });
});

describe("an entry of such a session", () => {
  const lease = leaseOf();
  const entryOf = (mode = exclusive, n = 1) => new QueueEntry({ lease, name: "jobs", n, mode });
  const placed = (mode = exclusive) => entryOf(mode).confirmed(50n);
  const kvOf = (key: string, createRevision = 50n) => keyValue({ key, createRevision });
  const told = (kvs: readonly ReturnType<typeof keyValue>[], count = kvs.length, more = false) => ({
    ...{ kvs, more, count },
  });

  test("has a delay key, with the same number and value, unless it is a permit", () => {
    const entry = entryOf(writer, 3);
    expect(entry.delayKey).toBe(`jobs/write/${delayLeaseOf(LEASE).toString(16)}-3`);
    expect(delayedBy(entry.delayKey ?? "")).toBe(entry.key);
    expect(delayKeyOf(entry.key)).toBe(entry.delayKey);
    expect(entryOf(permit(2)).delayKey).toBeUndefined();
    expect(entryOf(weighted(2, 1)).delayKey).toBeUndefined();
  });

  test("joins and leaves with both keys in one transaction", () => {
    const { success, compare } = joinTxn([entryOf()], []);
    expect(success).toMatchObject([
      { kind: "put", leaseId: LEASE },
      { kind: "put", leaseId: delayLeaseOf(LEASE) },
    ]);
    expect(compare).toHaveLength(2);
    expect(leaveTxn(placed(), []).success).toMatchObject([{ kind: "delete" }, { kind: "delete" }]);
  });

  test.each([
    ["first", false],
    ["last", true],
  ])("does not wait for its own delay key, which etcd may give %s", (_, isLast) => {
    const mine = placed();
    const both = [kvOf(mine.delayKey ?? ""), kvOf(mine.key)];
    const own = isLast ? both.toReversed() : both;
    const other = keyValue({ key: "jobs/other", createRevision: 40n });

    expect(exclusive.joined(mine, [told(own)])).toBe(GRANTED);
    expect(exclusive.joined(mine, [told([...own, other])])).toMatchObject({
      ahead: 1,
      predecessor: { revision: 40n, holder: true },
    });
    expect(exclusive.positionOf(mine, [told(own)])).toBe("first");
    expect(exclusive.isFirst(mine, [told(own)])).toBe(true);
    expect(exclusive.isFirst(mine, [told([kvOf(mine.delayKey ?? "")])])).toBe(false);
    expect(exclusive.positionOf(mine, [told([kvOf(mine.delayKey ?? "")])])).toBe("gone");
  });

  test("is no lone holder to those behind it: neither of the two keys alone decides", () => {
    const other = new QueueEntry({ lease: new FakeCluster().lease(), name: "jobs", n: 1, mode: exclusive });
    const waiting = other.confirmed(60n);
    const theirs = placed();
    const keys = [theirs.key, theirs.delayKey ?? ""].map((key) => kvOf(key));
    for (const [below, before] of [keys, keys.toReversed()])
      expect(
        exclusive.positionOf(waiting, [
          told([keyValue({ key: waiting.key, createRevision: 60n }), below!, before!]),
        ]),
      ).toMatchObject({ ahead: 1, predecessor: { holder: false, before: { holder: true } } });
  });

  test("makes a reader wait for both keys of a writer", () => {
    const mine = new QueueEntry({ lease, name: "jobs", n: 2, mode: reader }).confirmed(60n);
    const theirs = placed(writer);
    expect(reader.joined(mine, [told([]), told([kvOf(theirs.key)], 2)])).toMatchObject({
      predecessor: { holder: false },
    });
  });

  test("counts once, until only its delay key is left", () => {
    const { key, delayKey = "" } = placed();
    const seen = (bytes: string, createRevision: bigint) => ({ bytes, createRevision });
    const [entry, delay] = [seen(key, 50n), seen(delayKey, 50n)];
    const others = [seen("jobs/a", 40n), seen("jobs/b", 50n), seen("jobs/c", 60n)];
    const found = withoutDelayKeys([...others, entry, delay].sort(byAge));
    expect(found).not.toContain(delay);
    expect(found).toHaveLength(4);
    expect(withoutDelayKeys([delay])).toEqual([delay]);
    expect(withoutDelayKeys([entry, seen(delayKey, 51n)])).toHaveLength(2);
  });
});

test("the option is a whole number of milliseconds, up to an hour", () => {
  expect(checkSession("Session.open", {}).releaseDelayMs).toBe(0);
  expect(checkSession("Session.open", { releaseDelayMs: 1500 }).releaseDelayMs).toBe(1500);
  for (const releaseDelayMs of [-1, 1.5, 3_600_001])
    expect(() => checkSession("Session.open", { releaseDelayMs })).toThrow(
      `Expected releaseDelayMs to be a whole number from 0 to 3600000, got ${releaseDelayMs}`,
    );
});
