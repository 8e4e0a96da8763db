import { describe, expect, test } from "vitest";
import type { SessionStateName } from "../../../../src/base/telemetry/messages.js";
import { healthOf, type HealthSource } from "../../../../src/base/telemetry/health.js";

const session = (state: SessionStateName, remainingMs = 13_000) => ({
  state,
  remainingMs: () => remainingMs,
});
const health = (more: Partial<HealthSource> = {}) =>
  healthOf({
    ...{ hosts: ["a:1", "b:1"], closed: false, standing: undefined, sessions: [] },
    contact: { hostInUse: undefined, lastContactFailed: false, silentHosts: new Map() },
    guardian: undefined,
    ...more,
  });

const failed = (ms: number) => new Map([["a:1", { error: new Error("connect ECONNREFUSED"), ms }]]);

describe("the health of a cluster", () => {
  test("is ok before its first use", () => {
    const member = { state: "unused", inUse: false, ok: true, error: undefined, failedMs: undefined };
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

  test("has whole milliseconds in JSON", () => {
    const standing = session("live", 4373.495424000001);
    const contact = { hostInUse: "b:1", lastContactFailed: true, silentHosts: failed(5.25) };

    expect(JSON.parse(JSON.stringify(health({ standing, contact })))).toMatchObject({
      ...{ remainingMs: 4373, members: [{ failedMs: 5 }, {}] },
    });
  });

  test("is not ok while any session is in jeopardy, or after a contact failed, or when it is closed", () => {
    const standing = session("live");
    const contact = { hostInUse: "b:1", lastContactFailed: true, silentHosts: failed(5) };

    expect(health({ standing, sessions: [standing, session("jeopardy")] }).ok).toBe(false);
    expect(health({ standing, contact })).toMatchObject({
      ok: false,
      members: [
        { host: "a:1", state: "failed", inUse: false, ok: false, error: "connect ECONNREFUSED", failedMs: 5 },
        { host: "b:1", state: "in_use", inUse: true, ok: true, error: undefined },
      ],
    });
    expect(health({ standing, contact: { ...contact, lastContactFailed: false } }).ok).toBe(true);
    expect(health({ standing, closed: true })).toMatchObject({ ok: false, state: "closed" });
  });

  test("is taken from the session with the nearest deadline while there is no standing one", () => {
    const sessions = [session("live", 9000), session("jeopardy", 4000)];

    expect(health({ sessions: [session("live", 9000)] })).toMatchObject({
      ...{ ok: true, state: "live", remainingMs: 9000 },
    });
    expect(health({ sessions })).toMatchObject({ ok: false, state: "jeopardy", remainingMs: 4000 });
  });

  test("says of a host that failed long ago, and was not asked since, when that was, but not that it is failed", () => {
    const failedHost = (ms: number, more: { hostInUse?: string; lastContactFailed?: boolean } = {}) => {
      const contact = { hostInUse: "b:1", lastContactFailed: false, silentHosts: failed(ms), ...more };
      return health({ contact }).members[0];
    };
    const error = "connect ECONNREFUSED";

    expect(failedHost(59_000)).toMatchObject({ state: "failed", ok: false, error, failedMs: 59_000 });
    expect(failedHost(780_000)).toMatchObject({ state: "unused", ok: true, error, failedMs: 780_000 });
    // Asked again, or nothing else answers.
    expect(failedHost(780_000, { hostInUse: "a:1" })).toMatchObject({ state: "in_use", ok: false });
    expect(failedHost(780_000, { lastContactFailed: true })).toMatchObject({ state: "failed", ok: false });
  });
});
