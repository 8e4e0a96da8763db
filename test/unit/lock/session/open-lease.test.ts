import { describe, expect, test } from "vitest";
import { openLease } from "../../../../src/lock/session/open-lease.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";

const TTL_SECONDS = 4;
const TTL_MS = TTL_SECONDS * 1000;

/** A session that is being opened: its lease is requested, but not granted yet. */
async function opening() {
  const cluster = new FakeCluster();
  const opened = openLease(
    cluster.state,
    { ttlSeconds: TTL_SECONDS, owner: undefined, releaseDelayMs: 0 },
    { signal: undefined, timeoutMs: undefined },
  );
  await settle();
  const grant = cluster.member.of("grant")[0]!;
  const { leaseId } = grant.request as { leaseId: bigint };
  const answer = () => grant.answer({ header: HEADER, leaseId, ttlSeconds: TTL_SECONDS });
  return { cluster, clock: cluster.clock, opened, answer, leaseId };
}

describe("a lease that is granted", () => {
  test("in time counts from when it was asked for", async () => {
    const { cluster, clock, opened, answer } = await opening();

    clock.advance(TTL_MS / 5);
    answer();

    expect((await opened).remainingMs()).toBe(0.9 * TTL_MS - TTL_MS / 5);
    expect(cluster.member.keepalives.flatMap(({ renewals }) => renewals)).toEqual([]);
  });

  test("late, as over a slow link, is renewed before it is used", async () => {
    const { cluster, clock, opened, answer, leaseId } = await opening();

    clock.advance(1500);
    answer();
    await settle();
    const stream = cluster.member.keepalives.at(-1);
    clock.advance(300);
    stream!.answer(leaseId, TTL_SECONDS);

    expect((await opened).remainingMs()).toBe(0.9 * TTL_MS - 300);
  });

  test("so late that it has expired again is granted once more", async () => {
    const { cluster, clock, opened, answer, leaseId } = await opening();

    clock.advance(1500);
    answer();
    await settle();
    cluster.member.keepalives.at(-1)!.answer(leaseId, 0);
    await settle();
    cluster.member.of("grant")[1]!.answer({ header: HEADER, leaseId, ttlSeconds: TTL_SECONDS });

    expect((await opened).remainingMs()).toBe(0.9 * TTL_MS);
  });
});
