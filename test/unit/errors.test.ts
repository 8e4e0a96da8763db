import { describe, expect, test } from "vitest";
import {
  type AnyLeaseholdError,
  DeadlockError,
  EtcdRefusedError,
  EtcdUnavailableError,
  KindMismatchError,
  LeaseholdError,
  LockExpiringError,
  LockLostError,
  LockReleasedError,
  LockTimeoutError,
  PackageMissingError,
  SessionClosedError,
  SessionLostError,
  StaleFenceError,
} from "../../src/index.js";
import { MemberRefusedError, UnansweredError } from "../../src/etcd/port.js";

const LEASE_ID = 2n ** 62n + 1n;
const lost = new SessionLostError(LEASE_ID, "expired", "no renewal was accepted for 9 s (TTL 10 s)");
const down = new UnansweredError("connect ECONNREFUSED 127.0.0.1:2379");

/** Each class, its fields in JSON, and words of its message: what failed, on what, and why. */
const ALL: readonly (readonly [string, AnyLeaseholdError, Record<string, unknown>, RegExp])[] = [
  [
    "SESSION_LOST",
    lost,
    {
      ...{ leaseId: `${LEASE_ID}`, loss: "expired" },
      ...{ remainingMs: 0, sinceLastRenewalMs: 0, stalledMs: 0, members: {} },
    },
    /4000000000000001 .*TTL 10 s/,
  ],
  ["SESSION_CLOSED", new SessionClosedError(0xabcn), { leaseId: "2748" }, /abc/],
  [
    "LOCK_LOST",
    new LockLostError("jobs", "jobs/77", "expired", lost),
    { lockName: "jobs", key: "jobs/77", loss: "expired", cause: lost.toJSON() },
    /"jobs".*not renewed in time.*jobs\/77/,
  ],
  ["LOCK_RELEASED", new LockReleasedError("jobs"), { lockName: "jobs" }, /"jobs"/],
  [
    "LOCK_TIMEOUT",
    new LockTimeoutError("jobs", 100, undefined, undefined),
    { lockName: "jobs", timeoutMs: 100 },
    /"jobs" not acquired within 100 ms$/,
  ],
  [
    "LOCK_EXPIRING",
    new LockExpiringError("jobs", 12.5),
    { lockName: "jobs", remainingMs: 12.5 },
    /"jobs" has 12 ms/,
  ],
  ["STALE_FENCE", new StaleFenceError(6n, 7n), { fence: "6", highest: "7" }, /6 is stale: 7/],
  [
    "DEADLOCK",
    new DeadlockError("jobs", 'Lock "jobs" would wait for "jobs/a"'),
    { lockName: "jobs" },
    /"jobs".*"jobs\/a"/,
  ],
  [
    "KIND_MISMATCH",
    new KindMismatchError({ name: "a", kind: "mutex" }, { name: "a", kind: "permit" }, "a/77"),
    { lockName: "a", kind: "mutex", found: "permit", foundName: "a" },
    /^Cannot use "a" for a Mutex: it is in use by a Semaphore \(key a\/77\)\. Rename one of them$/,
  ],
  [
    "KIND_MISMATCH",
    new KindMismatchError({ name: "a", kind: "all" }, { name: "a/17", kind: "unknown" }, "a/17/77"),
    { lockName: "a", kind: "all", found: "unknown", foundName: "a/17" },
    /^Cannot use "a" for lockAll: "a\/17" is in use by .*Go's Mutex \(key a\/17\/77\), and a name below another one blocks it\. Rename one of them$/,
  ],
  [
    "KIND_MISMATCH",
    new KindMismatchError(
      { name: "a", kind: "mutex" },
      { name: "a//leasehold/once/b", kind: "mutex", isMark: true },
      "a//leasehold/once/b//0000000000000007",
    ),
    { lockName: "a", kind: "mutex", found: "mutex", foundName: "a//leasehold/once/b" },
    /has left marks in its queue \(key a\/\/leasehold\/once\/b\/\/0+7\)\. Delete all keys that begin with "a\/\/leasehold\/once\/"$/,
  ],
  [
    "ETCD_UNAVAILABLE",
    new EtcdUnavailableError("grant a lease", new Map([["a:1", down]])),
    { members: { "a:1": { name: "UnansweredError", message: down.message } } },
    /grant a lease.*a:1: connect ECONNREFUSED/,
  ],
  [
    "ETCD_REFUSED",
    new EtcdRefusedError("quota", "a:1", "etcdserver: mvcc: database space exceeded", {
      what: "grant a lease",
    }),
    { reason: "quota", host: "a:1" },
    /a:1 refused to grant a lease \(quota\): .*space exceeded/,
  ],
  [
    "PACKAGE_MISSING",
    new PackageMissingError("etcd3", 'The transport "etcd3"'),
    { packageName: "etcd3" },
    /^The transport "etcd3" needs the package etcd3: npm install etcd3$/,
  ],
];

describe.each(ALL)("an error of code %s", (code, error, fields, message) => {
  test("is known by its code, its name and instanceof", () => {
    expect(error.code).toBe(code);
    expect(error.name).toBe(error.constructor.name);
    expect(error).toBeInstanceOf(LeaseholdError);
    expect(error.stack).toContain(`${error.name}: ${error.message}`);
  });

  test("has a literal as its name, which does not depend on the name of its class", () => {
    const short = Object.create(error, { constructor: { value: class le {} } }) as Error;

    expect(short.name).toBe(error.name);
    expect(Object.keys(error)).not.toContain("name");
  });

  test("says what failed, on what and why", () => {
    expect(error.message).toMatch(message);
  });

  test("becomes JSON with everything it knows, bigints as exact decimal strings, times as whole milliseconds", () => {
    expect(JSON.parse(JSON.stringify(error))).toEqual({
      name: error.name,
      code,
      message: error.message,
      ...Object.fromEntries(
        Object.entries(fields).map(([key, value]) => [
          key,
          typeof value === "number" ? Math.floor(value) : value,
        ]),
      ),
    });
  });
});

test("a lost lock tells the session's loss as its cause", () => {
  expect(new LockLostError("jobs", "jobs/77", "expired", lost).cause).toBe(lost);
});

test("an unavailable etcd tells the last failure of every member, by host and together", () => {
  const error = new EtcdUnavailableError(
    "read",
    new Map([
      ["a:1", down],
      ["b:1", new Error("b is down")],
    ]),
  );

  expect(error.cause).toBeInstanceOf(AggregateError);
  expect(error.cause.errors).toEqual([...error.members.values()]);
});

test.each([
  [{ "a:1": "silent", "b:1": "silent" }, /^etcd did not answer \(read\): a:1: /],
  [{ "a:1": "refused", "b:1": "refused" }, /^etcd refused \(read\): a:1: /],
  [{ "a:1": "silent", "b:1": "refused" }, /^etcd did not answer, or refused \(read\): a:1: /],
])("members that have failed by %o are not all told as silent", (failures, message) => {
  const of = {
    silent: down,
    refused: new MemberRefusedError("tls", "no certificate", { host: "a:1", inDoubt: false }),
  };
  const members = Object.entries(failures).map(([host, how]) => [host, of[how as keyof typeof of]] as const);
  expect(new EtcdUnavailableError("read", new Map(members)).message).toMatch(message);
});
