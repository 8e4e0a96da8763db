// Why a session was lost: this process did not run, etcd did not answer, or both.
import { channel } from "node:diagnostics_channel";
import { afterEach, describe, expect, test } from "vitest";
import { CHANNELS } from "../../../../../src/base/telemetry/channels.js";
import type { RenewedMessage, SessionMessage } from "../../../../../src/base/telemetry/messages.js";
import type { RenewalReport, SessionLostError } from "../../../../../src/errors.js";
import { FakeCluster, LEASE_ID } from "../../../../support/fakes/fake-connection.js";

const TTL_SECONDS = 12;
const TTL_MS = TTL_SECONDS * 1000;
const DEADLINE_MS = 0.9 * TTL_MS;
/** From the first renewal to the next timer, which was set for half of the TTL after the grant. */
const NEXT_DUE_MS = TTL_MS / 2 + 1 - TTL_MS / 3;

function granted() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const reports = new Map<string, RenewalReport>();
  lease.onState = (state, _previous, report) => void reports.set(state, report);
  const { clock } = cluster;
  /** To the next renewal, which etcd answers. */
  const renew = () => {
    clock.advance(TTL_MS / 3);
    cluster.member.keepalives[0]!.answer(LEASE_ID, TTL_SECONDS);
  };
  const lost = () => {
    expect(lease.state).toBe("lost");
    return lease.signal.reason as SessionLostError;
  };
  return { cluster, clock, lease, reports, renew, lost };
}

const STOOD_STILL = /this process did not run for at least ([\d.]+) s of them/;
const NO_ANSWER = /etcd did not answer: .*no answer/;

const stopped: ((() => void) | undefined)[] = [];
afterEach(() => {
  for (const stop of stopped.splice(0)) stop?.();
});

function messagesOf<M>(name: string): M[] {
  const messages: M[] = [];
  const listen = (message: unknown) => void messages.push(message as M);
  channel(name).subscribe(listen);
  stopped.push(() => void channel(name).unsubscribe(listen));
  return messages;
}

describe("a session is lost because this process did not run", () => {
  test("seen by user code before any timer has run", () => {
    const { clock, renew, lost } = granted();
    renew();
    clock.freeze(TTL_MS);

    const error = lost();

    expect(error.stalledMs).toBe(TTL_MS - NEXT_DUE_MS);
    expect(error.sinceLastRenewalMs).toBe(TTL_MS);
    expect(error.remainingMs).toBe(0);
    expect(error.message).toContain("no renewal was accepted for 12 s (TTL 12 s); this process did not run");
    expect(error.message).toMatch(STOOD_STILL);
    expect(error.message).not.toContain("etcd did not answer");
    expect(error.cause).toBeUndefined();
  });

  test("seen by its late timers, which do not count twice", () => {
    const { clock, renew, lost } = granted();
    renew();
    clock.freeze(TTL_MS);
    clock.advance(1);

    expect(lost().stalledMs).toBe(TTL_MS - NEXT_DUE_MS);
    expect(lost().message).toMatch(STOOD_STILL);
  });

  test("though it ran again before the deadline, too late for an answer", () => {
    const { clock, renew, lost } = granted();
    renew();
    clock.freeze(DEADLINE_MS - 200);
    clock.advance(300);

    expect(lost().stalledMs).toBe(DEADLINE_MS - 200 - NEXT_DUE_MS);
    expect(lost().message).toMatch(STOOD_STILL);
    expect(lost().message).not.toContain("etcd did not answer");
  });

  test("though the answer to a renewal was waiting in the socket", () => {
    const { clock, lost } = granted();
    clock.advance(TTL_MS / 3 + 10);
    clock.freeze(TTL_MS);

    expect(lost().message).toMatch(STOOD_STILL);
    expect(lost().message).not.toContain("etcd did not answer");
  });

  test("several times in a row", () => {
    const { clock, lost } = granted();
    clock.freeze(TTL_MS / 3 + 2500);
    clock.advance(0);
    clock.freeze(DEADLINE_MS);

    const { stalledMs, message } = lost();

    // Between the two stalls it ran for an instant.
    expect(stalledMs).toBeGreaterThan(2500);
    expect(message).toMatch(STOOD_STILL);
    expect(message).not.toContain("etcd did not answer");
  });

  test("and only the clock that counts suspend knows", () => {
    const { cluster, clock, lease, lost } = granted();
    clock.sleep(3_600_000);
    expect(lease.standing).toBe("doubtful");
    cluster.member.keepalives[0]!.answer(LEASE_ID, 0);

    expect(lost().loss).toBe("revoked");
    expect(lost().stalledMs).toBe(3_600_000);
    expect(lost().message).toContain("etcd has no such lease");
    expect(lost().message).toContain("did not run for at least 3600 s (suspended");
  });
});

describe("a session is lost because etcd did not answer", () => {
  test("with the last failure of each member, as its cause, too", () => {
    const { clock, lost } = granted();
    clock.advance(TTL_MS);

    const error = lost();

    expect(error.stalledMs).toBe(0);
    expect(error.message).toMatch(NO_ANSWER);
    expect(error.message).not.toMatch(STOOD_STILL);
    expect([...error.members.keys()].sort()).toEqual(["a:1", "b:1", "c:1"]);
    expect((error.cause as AggregateError).errors).toEqual([...error.members.values()]);
    const json = JSON.parse(JSON.stringify(error)) as { members: Record<string, { message: string }> };
    expect(json.members["a:1"]?.message).toContain("no answer");
  });

  test("on a slow machine, whose timers are all a little late", () => {
    const { clock, lost } = granted();
    for (let passed = 0; passed < TTL_MS; passed += 200) {
      clock.freeze(150);
      clock.advance(50);
    }

    expect(lost().message).toMatch(NO_ANSWER);
    expect(lost().message).not.toMatch(STOOD_STILL);
  });

  test("not with failures from before the last accepted renewal", () => {
    const { cluster, clock, renew, lost } = granted();
    cluster.client.pool.fail(cluster.client.pool.current, new Error("an old failure"));
    clock.advance(1);
    renew();
    clock.advance(TTL_MS);

    expect(lost().message).toMatch(NO_ANSWER);
    expect(lost().message).not.toContain("an old failure");
  });
});

test("a session is lost for both reasons when a stall takes the time of another attempt", () => {
  const { clock, lost } = granted();
  clock.advance(0.6 * TTL_MS);
  clock.freeze(0.3 * TTL_MS);

  const error = lost();

  expect(error.message).toMatch(STOOD_STILL);
  expect(error.message).toMatch(NO_ANSWER);
  expect(error.cause).toBeInstanceOf(AggregateError);
});

test("an accepted renewal resets the sum", () => {
  const { cluster, clock, lease, reports, renew } = granted();
  clock.freeze(0.6 * TTL_MS);
  clock.advance(0);
  expect(reports.get("jeopardy")?.stalledMs).toBeGreaterThan(0.2 * TTL_MS);
  cluster.member.keepalives[0]!.answer(LEASE_ID, TTL_SECONDS);
  renew();
  clock.advance(TTL_MS / 2 + 2);

  expect(lease.state).toBe("jeopardy");
  const report = reports.get("jeopardy");
  expect(report?.stalledMs).toBe(0);
  expect(report?.sinceLastRenewalMs).toBeGreaterThan(TTL_MS / 2);
  expect(report?.remainingMs).toBeLessThan(0.4 * TTL_MS);
});

test("every change of state is published while someone listens", () => {
  const states = messagesOf<SessionMessage>(CHANNELS.session);
  const { cluster, clock, lease } = granted();
  clock.advance(TTL_MS / 2 + 2);
  cluster.member.keepalives[0]!.answer(LEASE_ID, TTL_SECONDS);
  clock.advance(TTL_MS);
  cluster.lease(TTL_SECONDS).abandon();

  const { hosts } = cluster.services.options;
  expect(states.map(({ from, to }) => `${from} ${to}`)).toEqual([
    ...["undefined live", "live jeopardy", "jeopardy live", "live jeopardy", "jeopardy lost"],
    ...["undefined live", "live closed"],
  ]);
  expect(states.every((state) => state.hosts === hosts && state.owner === "owner")).toBe(true);
  const [jeopardy, lost, closed] = [states[1]!, states[4]!, states[6]!];
  expect(jeopardy).toMatchObject({ leaseId: LEASE_ID, ttlSeconds: TTL_SECONDS, error: undefined });
  expect([...jeopardy.members.keys()]).toEqual(["a:1"]);
  expect(lost).toMatchObject({ error: lease.signal.reason as Error, remainingMs: 0 });
  expect(closed).toMatchObject({ error: { code: "SESSION_CLOSED" }, remainingMs: 0 });
});

test("every accepted renewal is published while someone listens, with the time to its answer", () => {
  const renewals = messagesOf<RenewedMessage>(CHANNELS.renewed);
  const { cluster, clock } = granted();
  clock.advance(TTL_MS / 3 + 700);
  cluster.member.keepalives[0]!.answer(LEASE_ID, TTL_SECONDS);

  const { hosts } = cluster.services.options;
  expect(renewals).toEqual([{ hosts, leaseId: LEASE_ID, ttlSeconds: TTL_SECONDS, durationMs: 700 }]);
});
