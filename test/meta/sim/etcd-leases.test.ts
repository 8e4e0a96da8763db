// When the simulated etcd's leases expire. What its answers say is compared with a real etcd in test/meta/fidelity.
import { describe, expect, it } from "vitest";
import type { LeaseAnswer } from "../../../src/etcd/port.js";
import { isRefusal } from "../../../src/testing/memory/protocol.js";
import { put, setUp } from "./etcd-setup.js";

function withLeases() {
  const setup = setUp();
  const grant = (leaseId: bigint, ttlSeconds = 5): LeaseAnswer =>
    setup.ask({ kind: "grant", leaseId, ttlSeconds });
  const timeToLive = (leaseId: bigint): LeaseAnswer =>
    setup.ask({ kind: "timeToLive", leaseId, withoutKeys: true });
  const answers: LeaseAnswer[] = [];
  const stream = setup.member.keepalive((answer) => {
    if (!isRefusal(answer)) answers.push(answer);
  });
  return { ...setup, grant, timeToLive, stream, answers };
}

describe("a renewal", () => {
  it("begins the TTL anew", () => {
    const { grant, timeToLive, stream, answers, scheduler } = withLeases();
    grant(7n);
    scheduler.advance(4_900);
    stream.send(7n);
    scheduler.advance(4_900);

    expect(answers).toMatchObject([{ leaseId: 7n, ttlSeconds: 5 }]);
    expect(timeToLive(7n).ttlSeconds).toBe(0);
  });

  it("of a lease that does not exist has TTL 0", () => {
    const { stream, answers } = withLeases();

    stream.send(7n);

    expect(answers).toMatchObject([{ leaseId: 7n, ttlSeconds: 0 }]);
  });

  it("of an expired lease is answered when that is revoked, and those after it only then", () => {
    const { grant, stream, answers, scheduler, etcd } = withLeases();
    grant(7n);
    scheduler.advance(4_000);
    grant(8n);
    scheduler.advance(1_000);

    expect(etcd.leases.has(7n)).toBe(true);
    stream.send(7n);
    stream.send(8n);
    expect(answers).toEqual([]);
    scheduler.advance(500);
    expect(answers).toMatchObject([
      { leaseId: 7n, ttlSeconds: 0 },
      { leaseId: 8n, ttlSeconds: 5 },
    ]);
  });
});

describe("an expired lease", () => {
  it("is revoked within 500 ms, and never early", () => {
    const { grant, run, scheduler, etcd } = withLeases();
    scheduler.advance(77);
    grant(7n);
    run(put("a", "", 7n));

    scheduler.advance(4_999);
    expect(etcd.leases.has(7n)).toBe(true);
    scheduler.advance(501);
    expect(etcd.leases.has(7n)).toBe(false);
    expect(etcd.store.keys).toEqual([]);
  });

  it("waits if 500 others are revoked in the same run of the loop", () => {
    const { grant, scheduler, etcd } = withLeases();
    for (let id = 1n; id <= 600n; id++) grant(id);

    scheduler.advance(5_500);
    expect(etcd.leases.all).toHaveLength(100);
    scheduler.advance(500);
    expect(etcd.leases.all).toEqual([]);
  });

  it("leaves no timer behind", () => {
    const { grant, scheduler } = withLeases();
    grant(7n);
    scheduler.advance(6_000);

    expect(scheduler.pending).toBe(0);
  });
});
