import { channel } from "node:diagnostics_channel";
import { describe, expect, test, onTestFinished } from "vitest";
import { CHANNELS, type RejoinMessage } from "../../../../src/base/telemetry/index.js";
import {
  EtcdRefusedError,
  EtcdUnavailableError,
  SessionClosedError,
  SessionLostError,
} from "../../../../src/errors.js";
import { UnansweredError } from "../../../../src/etcd/port.js";
import { acquire, type Acquirer } from "../../../../src/lock/hold/acquire.js";
import type { AcquireTarget } from "../../../../src/lock/hold/events.js";
import type { CheckedWait } from "../../../../src/base/options/check.js";
import { NO_LOCK_OPTIONS } from "../../../../src/base/options/lock.js";
import type { Lease } from "../../../../src/lock/session/lease.js";
import type { LeaseSource } from "../../../../src/lock/session/cluster.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, LEASE_ID } from "../../../support/fakes/fake-connection.js";

const LOST = () => new SessionLostError(LEASE_ID, "revoked", "a test says so");
const CLOSED = () => new SessionClosedError(LEASE_ID);
const UNAVAILABLE = () => new EtcdUnavailableError("open a session", new Map());
const REFUSED = () => new EtcdRefusedError("permission", "a:1", "no");

/** How a call goes: each attempt takes the next of `attempts`, an error or the result, and the last one for ever. */
interface Script {
  readonly attempts: readonly ((lease: Lease) => unknown)[];
  readonly rejoin?: boolean;
  readonly joined?: boolean;
  readonly reopens?: boolean;
  readonly wait?: Partial<CheckedWait>;
  /** Milliseconds that each attempt lasts. */
  readonly lasts?: number;
}

async function scene({ attempts, rejoin = false, joined = false, reopens = true, ...rest }: Script) {
  const cluster = new FakeCluster({ hosts: ["a:1"] });
  const { clock, services } = cluster;
  const lease = cluster.lease(3600);
  const begins: number[] = [];
  const start = clock.monotonic();
  const source: LeaseSource = { services, reopens, lease: () => lease };
  const target: AcquireTarget = { source, kind: "mutex", name: "jobs", options: NO_LOCK_OPTIONS };
  const by: Acquirer<AcquireTarget, unknown, unknown> = {
    join: () => {
      begins.push(clock.monotonic() - start);
      const next = attempts[Math.min(begins.length, attempts.length) - 1]?.(lease);
      if (rest.lasts !== undefined) clock.freeze(rest.lasts);
      const granted = next instanceof Error ? Promise.reject(next) : Promise.resolve(next);
      return { granted, joined, waitingFor: { name: "jobs", revision: undefined }, giveUp() {} };
    },
    made: (value) => value,
    unwanted: () => {},
  };
  const published: RejoinMessage[] = [];
  const hear = (message: unknown) => void published.push(message as RejoinMessage);
  channel(CHANNELS.rejoin).subscribe(hear);
  onTestFinished(() => void channel(CHANNELS.rejoin).unsubscribe(hear));
  let end: unknown = "pending";
  const wait = { signal: undefined, timeoutMs: undefined, rejoin, ...rest.wait };
  void acquire(target, wait, by).then(
    (value) => (end = value),
    (error: unknown) => (end = error),
  );
  await settle();
  return { cluster, clock, lease, begins, published, end: () => end };
}

describe("a call whose session ends", () => {
  test.each([
    ["lost", LOST],
    ["closed by its user", CLOSED],
  ])("begins again at once, with the next session, if it was %s before the call joined", async (_, error) => {
    const { begins, end, published } = await scene({ attempts: [error, () => "granted"] });

    expect([begins, end()]).toEqual([[0, 0], "granted"]);
    expect(published).toEqual([]);
  });

  test("begins again after pauses that double up to 1 s, half of each random, while it ends every time", async () => {
    const { clock, begins } = await scene({ attempts: [LOST] });
    await clock.pass(10_000);

    const pauses = begins.slice(1).map((at, n) => at - (begins[n] ?? 0));
    expect(pauses.slice(0, 9)).toEqual([0, 10, 20, 40, 80, 160, 320, 500, 500]);
    clock.nextRandom = 0.5;
    await clock.pass(2000);
    expect(begins.slice(-1)[0]! - begins.slice(-2)[0]!).toBe(750);
  });

  test("begins again at once after an attempt of more than 5 s", async () => {
    const attempts = [LOST, LOST, LOST, () => "granted"];
    const { begins } = await scene({ attempts, lasts: 5001, rejoin: true, joined: true });

    expect(begins).toEqual([0, 5001, 10_002, 15_003]);
  });

  test.each([
    ["it had joined a queue", { joined: true }, LOST],
    ["the session is the caller's own", { reopens: false }, LOST],
    ["etcd has rejected it", { rejoin: true }, REFUSED],
    ["etcd did not answer", {}, UNAVAILABLE],
  ] as const)("rejects with that very error if %s", async (_, script, error) => {
    const failure = error();
    const { begins, end } = await scene({ ...script, attempts: [() => failure, () => "granted"] });

    expect(begins).toHaveLength(1);
    const same = failure instanceof EtcdUnavailableError ? { code: failure.code } : failure;
    expect(end()).toMatchObject(same);
  });

  test("tries another session once if the lease is why etcd rejects the call", async () => {
    const { begins, end } = await scene({
      attempts: [(used) => ((used.unfit = true), REFUSED()), REFUSED],
    });

    expect(begins).toHaveLength(2);
    expect(end()).toBeInstanceOf(EtcdRefusedError);
  });
});

describe("a call with rejoin", () => {
  test("begins again though it had joined a queue, and says so with the reason and the pause", async () => {
    const { published, end, clock, lease } = await scene({
      attempts: [LOST, UNAVAILABLE, () => "granted"],
      rejoin: true,
      joined: true,
    });
    await clock.pass(1000);

    expect(end()).toBe("granted");
    const about = { kind: "mutex", name: "jobs", names: ["jobs"], label: undefined };
    const of = { ...about, owner: lease.owner, leaseId: lease.leaseId };
    expect(published).toMatchObject([
      { ...of, error: { code: "SESSION_LOST" }, failures: 1, delayMs: 0 },
      { ...of, error: { code: "ETCD_UNAVAILABLE" }, failures: 2, delayMs: 10 },
    ]);
  });

  test("pauses before each attempt while etcd does not answer, also before the second", async () => {
    const { clock, begins } = await scene({ attempts: [UNAVAILABLE], rejoin: true });
    await clock.pass(100);

    expect(begins).toEqual([0, 10, 30, 70]);
  });
});

describe("in the pause before it begins again, a call", () => {
  const PAUSING = { attempts: [UNAVAILABLE], rejoin: true };

  test("rejects at once with the reason of an abort, and leaves no timer and no listener", async () => {
    const abort = new AbortController();
    const { clock, begins, end, cluster } = await scene({ ...PAUSING, wait: { signal: abort.signal } });
    const timers = clock.timers;
    abort.abort(new Error("enough"));
    await settle();

    expect(end()).toBe(abort.signal.reason);
    expect(clock.timers).toBe(timers - 1);
    await clock.pass(5000);
    expect(begins).toHaveLength(1);
    cluster.state.closing.abort(CLOSED());
  });

  test("rejects with the reason of the abort even if that is the end of a session", async () => {
    const abort = new AbortController();
    const { end } = await scene({ ...PAUSING, wait: { signal: abort.signal } });
    abort.abort(LOST());
    await settle();

    expect(end()).toBe(abort.signal.reason);
  });

  test("rejects at once with SessionClosedError when the cluster is closed", async () => {
    const { clock, begins, end, cluster } = await scene(PAUSING);
    cluster.state.closing.abort(new SessionClosedError(0n));
    await settle();

    expect(end()).toBeInstanceOf(SessionClosedError);
    await clock.pass(5000);
    expect(begins).toHaveLength(1);
  });

  test("rejects when its time limit ends, and does not begin again", async () => {
    const { clock, begins, end, published, cluster } = await scene({ ...PAUSING, wait: { timeoutMs: 25 } });
    // Otherwise a limit that is as short says nothing about etcd.
    cluster.client.hosts.unanswered("a:1", new UnansweredError("silent"));
    await clock.pass(24);
    expect(end()).toBe("pending");
    await clock.pass(1);

    expect(end()).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    expect(begins).toEqual([0, 10]);
    expect(published.map(({ delayMs }) => delayMs)).toEqual([10]);
  });
});
