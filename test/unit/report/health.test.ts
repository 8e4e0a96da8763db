import { describe, expect, test } from "vitest";
import type { SessionStateName } from "../../../src/diagnostics/messages.js";
import { healthOf, type HealthSource } from "../../../src/report/health.js";

const session = (state: SessionStateName, remainingMs = 13_000) => ({
  state,
  remainingMs: () => remainingMs,
});
const health = (more: Partial<HealthSource> = {}) =>
  healthOf({
    ...{ hosts: ["a:1", "b:1"], closed: false, standing: undefined, sessions: [] },
    contact: { hostInUse: undefined, contactFailed: false, failureOf: new Map() },
    ...more,
  });

describe("the health of a cluster", () => {
  test("is ok before its first use", () => {
    const member = { inUse: false, ok: true, error: undefined };
    expect(health()).toEqual({
      ...{ ok: true, state: "none", remainingMs: 0 },
      members: [
        { host: "a:1", ...member },
        { host: "b:1", ...member },
      ],
    });
  });

  test.each([
    ["live", true],
    ["jeopardy", false],
    ["lost", false],
    // Its user has closed it; the next call opens another one.
    ["closed", true],
  ] as const)("is that of the standing session: %s", (state, ok) => {
    const standing = session(state);
    expect(health({ standing, sessions: [standing] })).toMatchObject({ ok, state, remainingMs: 13_000 });
  });

  test("is not ok while any session is in jeopardy, or after a contact failed, or when it is closed", () => {
    const standing = session("live");
    const failed = new Map([["a:1", new Error("connect ECONNREFUSED")]]);
    const contact = { hostInUse: "b:1", contactFailed: true, failureOf: failed };

    expect(health({ standing, sessions: [standing, session("jeopardy")] }).ok).toBe(false);
    expect(health({ standing, contact })).toMatchObject({
      ok: false,
      members: [
        { host: "a:1", inUse: false, ok: false, error: "connect ECONNREFUSED" },
        { host: "b:1", inUse: true, ok: true, error: undefined },
      ],
    });
    expect(health({ standing, contact: { ...contact, contactFailed: false } }).ok).toBe(true);
    expect(health({ standing, closed: true })).toMatchObject({ ok: false, state: "closed" });
  });
});
