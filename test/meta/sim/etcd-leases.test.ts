// The simulated etcd's leases: grants, renewals, expiry.
import { describe, expect, it } from "vitest";
import type { LeaseAnswer } from "../../../src/etcd/port.js";
import { isRefusal } from "../../sim/etcd/refusals.js";
import { put, setUp } from "./etcd-setup.js";

type TimeToLive = LeaseAnswer & { readonly keys: readonly Buffer[] };

function withLeases() {
  const setup = setUp();
  const grant = (leaseId: bigint, ttlSeconds = 5): LeaseAnswer =>
    setup.ask({ kind: "grant", leaseId, ttlSeconds });
  const timeToLive = (leaseId: bigint, withoutKeys = false): TimeToLive =>
    setup.ask({ kind: "timeToLive", leaseId, withoutKeys });
  const answers: LeaseAnswer[] = [];
  const stream = setup.member.keepalive((answer) => {
    if (!isRefusal(answer)) answers.push(answer);
  });
  return { ...setup, grant, timeToLive, stream, answers };
}

describe("a grant", () => {
  it("gives at least 2 seconds", () => {
    const { grant } = withLeases();

    expect([0, 1, 2, 3].map((ttl, i) => grant(BigInt(i + 1), ttl).ttlSeconds)).toEqual([2, 2, 2, 3]);
  });

  it("of a taken ID, or for too long, is rejected", () => {
    const { grant, refusal } = withLeases();
    grant(7n);

    expect(refusal({ kind: "grant", leaseId: 7n, ttlSeconds: 5 })).toBe("etcdserver: lease already exists");
    expect(refusal({ kind: "grant", leaseId: 8n, ttlSeconds: 9_000_000_001 })).toBe(
      "etcdserver: too large lease TTL",
    );
  });
});

describe("a revocation", () => {
  it("deletes the keys of the lease in one revision, in the order of their bytes", () => {
    const { grant, run, ask, etcd } = withLeases();
    grant(7n);
    for (const key of ["b", "c", "a"]) run(put(key, "", 7n));

    ask({ kind: "revoke", leaseId: 7n });

    expect(etcd.store.history.at(-1)).toMatchObject({ revision: 5n, names: ["a", "b", "c"] });
    expect(etcd.store.keys).toEqual([]);
  });

  it("of a lease without keys makes no revision", () => {
    const { grant, ask, etcd } = withLeases();
    grant(7n);

    ask({ kind: "revoke", leaseId: 7n });

    expect(etcd.store.revision).toBe(1n);
  });
});

describe("the time to live", () => {
  it("is in whole seconds, and less than the TTL from the beginning", () => {
    const { grant, timeToLive, scheduler } = withLeases();
    grant(7n);

    expect(timeToLive(7n).ttlSeconds).toBe(4);
    scheduler.advance(1_500);
    expect(timeToLive(7n).ttlSeconds).toBe(3);
  });

  it("comes with the keys of the lease, if they are asked for", () => {
    const { grant, run, timeToLive } = withLeases();
    grant(7n);
    run(put("b", "", 7n), put("a", "", 7n));

    expect(timeToLive(7n).keys.map(String)).toEqual(["a", "b"]);
    expect(timeToLive(7n, true).keys).toEqual([]);
  });
});

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
