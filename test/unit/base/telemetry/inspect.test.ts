import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { connect } from "../../../../src/connect.js";
import { Session } from "../../../../src/lock/session/cluster.js";
import {
  type HoldSnapshot,
  type KeptSnapshot,
  INSPECT,
  inspected,
  type InspectArguments,
  type ReportingLease,
  snapshotOf,
  type WaitSnapshot,
} from "../../../../src/base/telemetry/inspect.js";

class Shown {
  constructor(private readonly read: () => object) {}

  [INSPECT](...how: InspectArguments): string {
    return inspected("Shown", this.read, how);
  }
}

describe("what console.log shows", () => {
  test("is the class and its fields on one line, without those that are undefined", () => {
    const fields = { name: "jobs", fence: 41n, held: true, remainingMs: 12_999.7, label: undefined };

    expect(inspect(new Shown(() => fields))).toBe(
      "Shown { name: 'jobs', fence: 41n, held: true, remainingMs: 13000 }",
    );
  });

  test("respects the depth, and the options of whoever prints it", () => {
    const shown = new Shown(() => ({ names: [["a"]] }));

    expect(inspect({ a: { b: { c: shown } } })).toContain("c: [Shown]");
    expect(inspect(shown, { depth: 0 })).toBe("Shown { names: [Array] }");
    expect(inspect(shown, { colors: true })).toContain("\u001b[");
  });

  test("has no control characters, and a limited length, whatever a name contains", () => {
    const name = `\u001b[31m\u202e\r\n${"x".repeat(1 << 20)}`;
    const text = inspect(new Shown(() => ({ name })));

    expect(text.length).toBeLessThan(300);
    expect(/[\p{Cc}\p{Cf}]/u.test(text.replaceAll("\n", ""))).toBe(false);
  });

  test("of a cluster contains no secret", () => {
    const auth = { username: "jo", password: "hunter2" };
    const text = inspect(connect({ hosts: "http://a:2379", auth }), { depth: Infinity, showHidden: true });

    expect(text.replace(/\s+/g, " ")).toBe(
      `Cluster { hosts: [ 'http://a:2379', [length]: 1 ], ok: true, session: 'none', remainingMs: 0 }`,
    );
  });

  test("of an object that only inherits from the class is its class", () => {
    expect(inspect(Object.create(Session.prototype))).toBe("Session {}");
  });
});

const LEASE_ID = 0x6a1fn;
const hold = (name: string): HoldSnapshot => ({
  ...{ kind: "mutex", name, label: "jobs/:id", leaseId: LEASE_ID, key: `${name}/6a1f` },
  ...{ revision: 41n, fence: 41n, heldMs: 5 },
});
const wait = (name: string): WaitSnapshot => ({
  ...{ kind: "all", names: ["a", name], name, label: undefined, leaseId: LEASE_ID },
  ...{ key: undefined, revision: undefined, waitedMs: 3, ahead: undefined },
});

const kept = (name: string): KeptSnapshot => ({
  ...{ kind: "mutex", name, leaseId: LEASE_ID, key: `${name}/6a1f`, revision: 42n, idleMs: 4 },
});

function lease(): ReportingLease {
  return {
    ...{ leaseId: LEASE_ID, owner: "web-1", state: "live", ttlSeconds: 15, remainingMs: () => 13_000 },
    holds: new Set([{ describe: () => hold("jobs/1") }, {}]),
    kept: () => [kept("jobs/2")],
    waits: new Set([{ describe: () => wait("b") }]),
  };
}

describe("a snapshot", () => {
  test("has the sessions, the holds and the waits, as frozen data", () => {
    const snapshot = snapshotOf([lease()]);

    expect(snapshot).toEqual({
      sessions: [{ leaseId: LEASE_ID, owner: "web-1", state: "live", ttlSeconds: 15, remainingMs: 13_000 }],
      holds: [hold("jobs/1")],
      kept: [kept("jobs/2")],
      waits: [wait("b")],
    });
    const { sessions, holds, kept: idle, waits } = snapshot;
    for (const part of [snapshot, ...[sessions, holds, idle, waits].flatMap((all) => [all, all[0]])])
      expect(Object.isFrozen(part)).toBe(true);
  });

  test("is JSON, with decimal strings for bigints, and shows no toJSON", () => {
    const snapshot = snapshotOf([lease()]);

    expect(JSON.parse(JSON.stringify(snapshot))).toMatchObject({
      sessions: [{ leaseId: "27167" }],
      holds: [{ leaseId: "27167", revision: "41", fence: "41" }],
      kept: [{ leaseId: "27167", revision: "42", idleMs: 4 }],
      waits: [{ names: ["a", "b"], waitedMs: 3 }],
    });
    expect(inspect(snapshot, { depth: 5 })).not.toContain("toJSON");
  });
});
