import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, test } from "vitest";
import { Lease, type SessionEnd } from "../../../../src/lock/session/lease.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, LEASE_ID } from "../../../support/fakes/fake-connection.js";

const TTL_SECONDS = 12;
const TTL_MS = TTL_SECONDS * 1000;
const HOUR_MS = 3_600_000;

/** A lease granted now, what it reports, and its first keepalive stream after a third of the TTL. */
function granted() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const states: string[] = [];
  lease.onState = (state, previous) => states.push(`${previous} ${state}`);
  const firstStream = () => {
    cluster.clock.advance(TTL_MS / 3);
    return cluster.member.keepalives[0]!;
  };
  return { cluster, clock: cluster.clock, lease, states, firstStream };
}

const lossOf = (lease: Lease) => (lease.signal.reason as { loss?: string }).loss;

describe("a session's lease", () => {
  test("goes from live to jeopardy, back to live with the next answer, and is lost at its deadline", () => {
    const { cluster, clock, lease, states } = granted();

    clock.advance(0.5 * TTL_MS + 1);
    expect([lease.state, lease.standing]).toEqual(["jeopardy", "held"]);

    cluster.member.keepalives[0]!.answer(LEASE_ID, TTL_SECONDS);
    expect(lease.state).toBe("live");

    clock.advance(TTL_MS);
    expect(states).toEqual(["live jeopardy", "jeopardy live", "live jeopardy", "jeopardy lost"]);
    expect(lossOf(lease)).toBe("expired");
  });

  test("counts an answer from the time its renewal was sent, not from when it came", () => {
    const { clock, lease, firstStream } = granted();
    const stream = firstStream();

    clock.advance(1000);
    stream.answer(LEASE_ID, TTL_SECONDS);

    expect(lease.remainingMs()).toBe(0.9 * TTL_MS - 1000);
  });

  test("is renewed together with others of its cluster: up to a thirtieth of its TTL early, and never late", () => {
    const cluster = new FakeCluster();
    const { clock } = cluster;
    const sent = new Map<bigint, number>();
    const moments = new Set<number>();
    for (let n = 1; n <= 200; n++) {
      const leaseId = BigInt(n);
      const renewal = clock.now();
      new Lease(cluster.state, { leaseId, ttlSeconds: TTL_SECONDS, sent: renewal }, "owner");
      sent.set(leaseId, renewal.monotonic);
      clock.advance(TTL_MS / 3 / 201);
    }
    for (let at = 0; at < TTL_MS; at++) {
      clock.advance(1);
      const stream = cluster.connected[0]?.keepalives[0];
      for (const leaseId of stream?.renewals.splice(0) ?? []) {
        const now = clock.monotonic();
        const early = TTL_MS / 3 - (now - sent.get(leaseId)!);
        expect(early).toBeGreaterThan(-1);
        expect(early).toBeLessThan(TTL_MS / 30 + 1);
        sent.set(leaseId, now);
        moments.add(now);
        stream?.answer(leaseId, TTL_SECONDS);
      }
    }

    // Of 600 renewals.
    expect(moments.size).toBeLessThanOrEqual(3 * 11);
    expect(cluster.state.leases.size).toBe(200);
  });

  test("tells the end in order: state, then the session's signal, then holds and waits, then the event", () => {
    const { clock, lease } = granted();
    const told: string[] = [];
    const ended = (who: string) => ({ sessionEnded: () => void told.push(`${who} ${lease.state}`) });
    lease.onState = (state) => void (state === "lost" && told.push(`event ${state}`));
    lease.signal.addEventListener("abort", () => told.push(`signal ${lease.state}`));
    lease.holds.add(ended("hold"));
    lease.waits.add(ended("wait"));

    clock.advance(0.9 * TTL_MS + 2);

    expect(told).toEqual(["signal lost", "hold lost", "wait lost", "event lost"]);
  });

  test("tells its end outside the context of the call that finds it, also after a listener has entered one", () => {
    const request = new AsyncLocalStorage<string>();
    const told: unknown[] = [];
    const end = () => {
      const { clock, lease } = granted();
      lease.signal.addEventListener("abort", () => {
        told.push(request.getStore());
        request.enterWith("the listener's");
      });
      lease.onState = () => void told.push(request.getStore());
      clock.freeze(0.9 * TTL_MS);
      return request.run("who asks", () => [lease.remainingMs(), request.getStore()]);
    };

    expect(end()).toEqual([0, "who asks"]);
    expect(end()).toEqual([0, "who asks"]);
    expect(told).toEqual([undefined, undefined, undefined, undefined]);
  });

  test("is lost in the first line that asks after a pause of the process, before any timer has run", () => {
    const { clock, lease } = granted();
    let told: SessionEnd | undefined;
    lease.holds.add({ sessionEnded: (reason) => (told = reason) });

    clock.freeze(0.9 * TTL_MS);

    expect(lease.standing).toBe("over");
    expect(lease.signal.aborted).toBe(true);
    expect(told).toBe(lease.signal.reason);
  });

  test("is not brought back by an answer that comes after its deadline", () => {
    const { clock, lease, firstStream } = granted();
    const stream = firstStream();

    clock.freeze(0.9 * TTL_MS);
    stream.answer(LEASE_ID, TTL_SECONDS);

    expect([lease.state, lease.standing, lease.remainingMs()]).toEqual(["lost", "over", 0]);
  });

  test("is renewed anew by the answer to a renewal that was sent since, not by one that was under way", async () => {
    const { lease, clock, firstStream } = granted();
    const stream = firstStream();
    clock.advance(1);
    let renewed = false;
    const renewal = lease.renewNow().then(() => (renewed = true));

    stream.answer(LEASE_ID, TTL_SECONDS);
    await settle();
    expect(renewed).toBe(false);

    stream.answer(LEASE_ID, TTL_SECONDS);
    await renewal;
    expect(lease.remainingMs()).toBe(0.9 * TTL_MS);
  });

  test("ignores the answer to a renewal that was sent on an earlier stream", () => {
    const { cluster, clock, lease, firstStream } = granted();
    const old = firstStream();

    // The patience, plus a moment for opening the next stream.
    clock.advance(1600);
    const before = lease.remainingMs();
    old.answer(LEASE_ID, TTL_SECONDS);
    expect(lease.remainingMs()).toBe(before);

    expect(cluster.member.host).toBe("b:1");
    cluster.member.keepalives[0]!.answer(LEASE_ID, TTL_SECONDS);
    expect(lease.remainingMs()).toBeGreaterThan(before + 1000);
  });

  test("believes a lower TTL in an answer, and no higher one", () => {
    const { lease, clock, firstStream } = granted();
    const stream = firstStream();

    stream.answer(LEASE_ID, TTL_SECONDS / 2);
    expect(lease.remainingMs()).toBe((0.9 * TTL_MS) / 2);

    clock.advance(TTL_MS / 3);
    stream.answer(LEASE_ID, TTL_SECONDS * 2);
    expect(lease.remainingMs()).toBe(0.9 * TTL_MS);
  });

  test("is lost at once, as revoked, when etcd answers with TTL 0", () => {
    const { lease, firstStream } = granted();

    firstStream().answer(LEASE_ID, 0);

    expect(lease.state).toBe("lost");
    expect(lossOf(lease)).toBe("revoked");
  });

  test("is lost as expired when that answer comes after its deadline, before any timer has run", () => {
    const { clock, lease, firstStream } = granted();
    const stream = firstStream();

    clock.freeze(TTL_MS);
    stream.answer(LEASE_ID, 0);

    expect(lossOf(lease)).toBe("expired");
  });

  test.each([
    ["its deadline passes", (clock: FakeCluster["clock"]) => clock.advance(TTL_MS)],
    ["etcd says it is gone", (_: FakeCluster["clock"], lease: Lease) => lease.leaseNotFound()],
  ])("is revoked in the background when %s", async (_, lose) => {
    const { cluster, clock, lease } = granted();

    lose(clock, lease);
    await settle();

    expect(
      cluster.connected.flatMap((member) => member.of("revoke")).map(({ request }) => request),
    ).toContain(LEASE_ID);
  });

  test("leaves no timer behind when it is lost and its revocation answered", async () => {
    const { cluster, clock, lease } = granted();

    lease.leaseNotFound();
    await settle();
    cluster.member.of("revoke")[0]!.answer(undefined);
    await clock.pass(0);

    expect(clock.timers).toBe(0);
  });
});

describe("an hour that only the clock with suspend counts", () => {
  test("makes the lease doubtful, not lost, and sends a renewal at once", () => {
    const { cluster, clock, lease, states } = granted();

    clock.sleep(HOUR_MS);
    expect(lease.standing).toBe("doubtful");

    expect([lease.state, lease.remainingMs(), lease.signal.aborted]).toEqual(["jeopardy", 0, false]);
    expect(states).toEqual(["live jeopardy"]);
    expect(cluster.member.keepalives[0]!.renewals).toEqual([LEASE_ID]);
  });

  test("is over with the answer to a renewal sent after it, not with that to an earlier one", () => {
    const { clock, lease, firstStream } = granted();
    const stream = firstStream();

    clock.sleep(HOUR_MS);
    stream.answer(LEASE_ID, TTL_SECONDS);
    expect(lease.standing).toBe("doubtful");

    expect(stream.renewals).toHaveLength(2);
    stream.answer(LEASE_ID, TTL_SECONDS);
    expect([lease.standing, lease.state]).toEqual(["held", "live"]);
  });

  test("ends in loss when etcd does not know the lease any more", () => {
    const { cluster, clock, lease } = granted();

    clock.sleep(HOUR_MS);
    expect(lease.standing).toBe("doubtful");
    cluster.member.keepalives[0]!.answer(LEASE_ID, 0);

    expect([lease.standing, lossOf(lease)]).toEqual(["over", "revoked"]);
  });

  test("changes nothing when it is an hour back", () => {
    const { clock, lease, states, firstStream } = granted();
    const stream = firstStream();

    clock.sleep(-HOUR_MS);
    expect([lease.state, lease.standing]).toEqual(["live", "held"]);
    stream.answer(LEASE_ID, TTL_SECONDS);
    clock.advance(TTL_MS / 3);

    expect(lease.remainingMs()).toBe((0.9 - 1 / 3) * TTL_MS);
    expect(states).toEqual([]);
  });
});
