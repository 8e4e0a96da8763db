import { afterAll, beforeAll, describe, test } from "vitest";
import { lastClaim } from "../../support/fixtures/claims.js";
import {
  contend,
  deadlineKnown,
  EXPIRED,
  expectOneEnd,
  latestDeadline,
  now,
  ttls,
} from "../../support/fixtures/lost-lock.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Crew } from "../../support/programs/workers.js";

describe.concurrent("a lost lock", { timeout: 40_000 }, () => {
  let etcd: EtcdCluster;

  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  test("ends at its deadline when etcd stands still", async ({ expect }) => {
    await using own = await startEtcd();
    await using crew = new Crew();
    const { holder, lock, gone, next, server } = await contend(crew, own, "standstill");

    const before = await holder.read("lock");
    own.member.pause();
    const fault = now();
    const ended = await holder.ended("lock");
    own.member.resume();
    const [deletion, taken, runs] = await Promise.all([gone(), next, holder.claims("lock")]);

    expect(ended).toMatchObject({ held: false, reason: EXPIRED });
    expectOneEnd(expect, runs);
    expect(lastClaim(runs)).toBeLessThanOrEqual(latestDeadline(fault));
    expect(lastClaim(runs)).toBeGreaterThan(deadlineKnown(before) - ttls(1 / 10));
    expect(ended.at).toBeLessThan(deletion.at);
    expect(taken.fence).toBeGreaterThan(lock.fence);
    server[Symbol.dispose]();
  });

  test("is lost as revoked when its lease is revoked", async ({ expect }) => {
    await using crew = new Crew();
    const { holder, leaseId, gone, next, server } = await contend(crew, etcd, "revoked");

    const revoke = await etcd.etcdctl(["lease", "revoke", leaseId.toString(16)]);
    const [ended, deletion] = await Promise.all([holder.ended("lock"), gone(), next]);
    const runs = await holder.claims("lock");

    expect(revoke.code).toBe(0);
    expect(ended.held).toBe(false);
    expect(ended.reason).toMatchObject({
      code: "LOCK_LOST",
      loss: "revoked",
      cause: { code: "SESSION_LOST" },
    });
    expectOneEnd(expect, runs);
    expect(lastClaim(runs)).toBeLessThan(deletion.at + ttls(2 / 3));
    server[Symbol.dispose]();
  });

  test("is lost as deleted within a fraction of the TTL when its key is deleted", async ({ expect }) => {
    await using crew = new Crew();
    const { holder, lock, gone, next, server } = await contend(crew, etcd, "deleted");

    const del = await etcd.etcdctl(["del", lock.key]);
    const [ended, deletion] = await Promise.all([holder.ended("lock"), gone(), next]);
    const runs = await holder.claims("lock");

    expect(del.stdout.trim()).toBe("1");
    expect(ended).toMatchObject({ held: false, reason: { code: "LOCK_LOST", loss: "deleted" } });
    expectOneEnd(expect, runs);
    expect(lastClaim(runs)).toBeLessThan(deletion.at + ttls(2 / 3));
    expect(holder.states("session").map((it) => it.state)).not.toContain("lost");
    server[Symbol.dispose]();
  });

  test("is not claimed by a process that stood still beyond the TTL", async ({ expect }) => {
    await using crew = new Crew();
    const { holder, gone, next, server } = await contend(crew, etcd, "paused-process");

    holder.pause();
    const fault = now();
    const [deletion, taken] = await Promise.all([gone(), next]);
    const resumed = now();
    holder.resume();
    const ended = await holder.ended("lock");
    const runs = await holder.claims("lock");

    expect(ended).toMatchObject({ held: false, reason: EXPIRED });
    expectOneEnd(expect, runs);
    expect(lastClaim(runs)).toBeLessThanOrEqual(latestDeadline(fault));
    expect(lastClaim(runs)).toBeLessThan(deletion.at);
    expect(taken.at).toBeLessThan(resumed);
    server[Symbol.dispose]();
  });
});
