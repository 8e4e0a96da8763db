import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  electionChannel,
  holdEndChannel,
  memberChannel,
  renewedChannel,
  sessionChannel,
} from "../../../../src/base/telemetry/channels.js";
import type {
  ElectionMessage,
  HoldEndMessage,
  MemberMessage,
} from "../../../../src/base/telemetry/messages.js";
import { SessionLostError } from "../../../../src/errors.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { LEASE_ID, LogWorld } from "../../../support/fixtures/log-world.js";

let world: LogWorld;

beforeEach(() => void (world = new LogWorld()));
afterEach(() => world.end());

const [A, B] = ["http://a:2379", "http://b:2379"] as const;

describe("the line about a session", () => {
  const late = { remainingMs: 5900, sinceLastRenewalMs: 7600 };

  test("names the members that did not answer when it is in jeopardy, and has an end", () => {
    const members = new Map([[A, new Error("connect ECONNREFUSED")]]);

    sessionChannel.publish(world.session("live", "jeopardy", { ...late, members }));
    world.clock.freeze(4000);
    sessionChannel.publish(world.session("jeopardy", "live"));

    expect(world.lines.all).toEqual([
      "warn leasehold: session 6a1f in jeopardy: last renewed 7.6 s ago (TTL 15 s), 5.9 s left; " +
        `etcd did not answer (${A}: connect ECONNREFUSED)`,
      "info leasehold: session 6a1f is renewed again, after 4 s in jeopardy",
    ]);
  });

  test("blames this process where it was paused for most of the time", () => {
    const members = new Map([[A, new Error("no answer")]]);

    sessionChannel.publish(world.session("live", "jeopardy", { ...late, stalledMs: 7000, members }));

    expect(world.lines.all.join()).toContain("; this process was paused for 7 s");
    expect(world.lines.all.join()).not.toContain("did not answer");
  });

  test("lists the locks that are lost with it, in one line", async () => {
    const error = new SessionLostError(LEASE_ID, "expired", "no renewal was accepted for 13.5 s (TTL 15 s)");
    for (let n = 0; n < 1000; n++) holdEndChannel.publish(hold(`orders/${n}`, "expired"));
    sessionChannel.publish(world.session("jeopardy", "lost", { sinceLastRenewalMs: 13_500, error }));
    await settle();

    expect(world.lines.all).toEqual([
      `error leasehold: ${error.message}; locks that ended with it: ` +
        '"orders/0", "orders/1", "orders/2", "orders/3", "orders/4" and 995 more',
    ]);
  });

  test("is for debugging when it is closed without a hold, and a warning with one", async () => {
    sessionChannel.publish(world.session("live", "closed"));
    await settle();
    holdEndChannel.publish(hold("jobs", "closed"));
    sessionChannel.publish(world.session("live", "closed"));
    await settle();

    expect(world.lines.all).toEqual([
      "debug leasehold: session 6a1f closed",
      'warn leasehold: session 6a1f closed; locks that ended with it: "jobs"',
    ]);
  });

  test("is one for each episode of slow renewals", () => {
    const renewed = (durationMs: number) =>
      renewedChannel.publish({ hosts: world.hosts, leaseId: LEASE_ID, ttlSeconds: 12, durationMs });

    for (const ms of [5, 2000, 2001, 5000, 1500, 2100, 900, 5, 3000]) renewed(ms);

    expect(world.lines.all).toEqual([
      "warn leasehold: session 6a1f was renewed in 2 s, which is slow for a TTL of 12 s",
      "info leasehold: session 6a1f was renewed in 900 ms: no longer slow",
      "warn leasehold: session 6a1f was renewed in 3 s, which is slow for a TTL of 12 s",
    ]);
  });

  function hold(name: string, reason: HoldEndMessage["reason"]): HoldEndMessage {
    const about = { hosts: world.hosts, kind: "mutex", name, names: [name], label: undefined } as const;
    const key = { key: `${name}/6a1f`, revision: 41n, fence: 41n, owner: "web-1", leaseId: LEASE_ID };
    return { ...about, ...key, heldMs: 3000, reason, error: undefined };
  }

  test("is not the place for a lock that was lost alone", () => {
    const error = new Error('Lock "jobs" lost: another client deleted its key');
    holdEndChannel.publish({ ...hold("jobs", "deleted"), error });
    holdEndChannel.publish(hold("jobs", "max_hold"));
    holdEndChannel.publish(hold("jobs", "released"));

    expect(world.lines.all).toEqual([
      `error leasehold: mutex "jobs" lost after 3 s: ${error.message}`,
      'warn leasehold: mutex "jobs" ended after 3 s, the limit of its maxHoldMs',
      'debug leasehold: released mutex "jobs" after 3 s',
    ]);
  });
});

describe("the line about members", () => {
  const publish = (host: string, state: MemberMessage["state"], error?: Error) =>
    memberChannel.publish({ hosts: world.hosts, host, state, error });

  test("is one for each fail-over", () => {
    publish(A, "up");
    publish(A, "down", new Error("no answer"));
    publish(A, "down", new Error("connect ECONNREFUSED"));
    publish(B, "up");
    publish(B, "up");

    expect(world.lines.all).toEqual([
      `debug leasehold: using ${A}`,
      `warn leasehold: ${A} failed (connect ECONNREFUSED); using ${B}`,
      `debug leasehold: using ${B}`,
    ]);
  });

  test("is one for an outage of all of them, and one for its end", () => {
    for (let n = 0; n < 50; n++) {
      publish(A, "down", new Error("no answer"));
      publish(B, "down", new Error("connect ECONNREFUSED"));
    }
    world.clock.advance(65_000);
    publish(A, "up");

    expect(world.lines.all).toEqual([
      `warn leasehold: no member of etcd has answered for 5 s: ${A}: no answer; ${B}: connect ECONNREFUSED`,
      `info leasehold: using ${A}: etcd answers again after 65 s`,
    ]);
  });

  test("takes a short failure of all members for the fail-over that it is", () => {
    publish(A, "up");
    for (const [from, to] of [
      [A, B],
      [B, A],
      [A, B],
    ] as const) {
      publish(from, "down", new Error("no answer"));
      world.clock.advance(4900);
      publish(to, "up");
    }
    world.clock.advance(60_000);

    expect(world.lines.all.slice(1)).toEqual([
      `warn leasehold: ${A} failed (no answer); using ${B}`,
      `warn leasehold: ${B} failed (no answer); using ${A}`,
      `warn leasehold: ${A} failed (no answer); using ${B}`,
    ]);
    expect(world.clock.timers).toBe(0);
  });

  test("is one for a refused host, until its reason changes", () => {
    for (const why of ["another cluster", "another cluster", "no etcd"]) {
      publish(B, "refused", new Error(why));
      publish(A, "up");
    }

    expect(world.lines.all.filter((line) => line.includes("refused:"))).toEqual([
      `warn leasehold: ${B} refused: another cluster`,
      `warn leasehold: ${B} refused: no etcd`,
    ]);
  });
});

describe("the line about an election", () => {
  const publish = (state: ElectionMessage["state"], more: Partial<ElectionMessage> = {}) => {
    const about = { hosts: world.hosts, name: "reports", label: undefined, owner: "web-1", state };
    const rest = { fence: undefined, error: undefined, delayMs: undefined };
    electionChannel.publish({ ...about, ...rest, ...more });
  };
  const fail = (times: number) => {
    for (let n = 0; n < times; n++) publish("retrying", { error: new Error("no quota"), delayMs: 1000 });
  };

  test("comes with the first failure, then with twice as many, and from the start after a success", () => {
    fail(100);
    publish("elected", { fence: 41n });
    fail(1);

    expect(world.lines.all).toEqual([
      'warn leasehold: election "reports": a campaign failed (no quota); the next one follows in 1 s',
      ...[2, 4, 8, 16, 32, 64].map(
        (n) =>
          `warn leasehold: election "reports": ${n} campaigns in a row failed (no quota); the next one follows in 1 s`,
      ),
      'info leasehold: election "reports": elected (fence 41)',
      'warn leasehold: election "reports": a campaign failed (no quota); the next one follows in 1 s',
    ]);
  });

  test("says why the leadership was lost", () => {
    publish("lost", { fence: 41n, error: new Error("its lease is gone") });

    expect(world.lines.all).toEqual([
      'warn leasehold: election "reports": lost (fence 41): its lease is gone',
    ]);
  });
});
