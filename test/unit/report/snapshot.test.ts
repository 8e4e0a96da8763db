import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import {
  snapshotOf,
  type HoldSnapshot,
  type ReportingLease,
  type WaitSnapshot,
} from "../../../src/telemetry/inspect.js";

const LEASE_ID = 0x6a1fn;
const hold = (name: string): HoldSnapshot => ({
  ...{ kind: "mutex", name, label: "jobs/:id", leaseId: LEASE_ID, key: `${name}/6a1f` },
  ...{ revision: 41n, fence: 41n, heldMs: 5 },
});
const wait = (name: string): WaitSnapshot => ({
  ...{ kind: "all", names: ["a", name], name, label: undefined, leaseId: LEASE_ID },
  ...{ key: undefined, revision: undefined, waitedMs: 3, ahead: undefined },
});

function lease(): ReportingLease {
  return {
    ...{ leaseId: LEASE_ID, owner: "web-1", state: "live", ttlSeconds: 15, remainingMs: () => 13_000 },
    holds: new Set([{ describe: () => hold("jobs/1") }, {}]),
    waits: new Set([{ describe: () => wait("b") }]),
  };
}

describe("a snapshot", () => {
  test("has the sessions, the holds and the waits, as frozen data", () => {
    const snapshot = snapshotOf([lease()]);

    expect(snapshot).toEqual({
      sessions: [{ leaseId: LEASE_ID, owner: "web-1", state: "live", ttlSeconds: 15, remainingMs: 13_000 }],
      holds: [hold("jobs/1")],
      waits: [wait("b")],
    });
    const { sessions, holds, waits } = snapshot;
    for (const part of [snapshot, sessions, holds, waits, sessions[0], holds[0], waits[0]])
      expect(Object.isFrozen(part)).toBe(true);
  });

  test("is JSON, with decimal strings for bigints, and shows no toJSON", () => {
    const snapshot = snapshotOf([lease()]);

    expect(JSON.parse(JSON.stringify(snapshot))).toMatchObject({
      sessions: [{ leaseId: "27167" }],
      holds: [{ leaseId: "27167", revision: "41", fence: "41" }],
      waits: [{ names: ["a", "b"], waitedMs: 3 }],
    });
    expect(inspect(snapshot, { depth: 5 })).not.toContain("toJSON");
  });
});
