import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import { observe } from "../../support/clients/observer.js";
import { lastClaim } from "../../support/fixtures/claims.js";
import {
  contend,
  deadlineKnown,
  EXPIRED,
  expectOneEnd,
  latestDeadline,
  now,
  TTL_SECONDS,
  ttls,
} from "../../support/fixtures/lost-lock.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { Crew, SHIFT_DATE } from "../../support/programs/workers.js";

const HOUR_MS = 3_600_000;

describe.concurrent("a lost lock", { timeout: 40_000 }, () => {
  let etcd: EtcdCluster;

  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  test("ends before etcd gives it away when the network swallows everything", async ({ expect }) => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using crew = new Crew();
    const { holder, gone, next, server } = await contend(crew, etcd, "black-hole", proxy.endpoint);

    const before = await holder.read("lock");
    await proxy.mode("blackhole");
    const fault = now();
    const ended = await holder.ended("lock");
    const [deletion, taken] = await Promise.all([gone(), next]);
    const runs = await holder.claims("lock");

    expect(ended).toMatchObject({ held: false, reason: EXPIRED });
    expectOneEnd(expect, runs);
    expect(lastClaim(runs)).toBeLessThanOrEqual(latestDeadline(fault));
    expect(lastClaim(runs)).toBeGreaterThan(deadlineKnown(before) - ttls(1 / 10));
    expect(lastClaim(runs)).toBeLessThan(deletion.at);
    expect(ended.at).toBeLessThan(deletion.at + ttls(1 / 10));
    expect(lastClaim(runs)).toBeLessThan(taken.at);
    server[Symbol.dispose]();
  });

  test.for([
    ["deleted", (key: string) => ["del", key]],
    ["revoked", (_: string, leaseId: bigint) => ["lease", "revoke", leaseId.toString(16)]],
  ] as const)(
    "is told as %s at once when the hold is long enough to be watched",
    async ([loss, by], { expect }) => {
      await using own = await startEtcd();
      await using crew = new Crew();
      const { holder, lock, leaseId, gone, server } = await contend(crew, own, "watched");
      const watches = async () => (await own.member.metrics()).get("etcd_debugging_mvcc_watcher_total");

      // The test's own observer, the waiter's watch, and the holder's on its own key.
      await expect.poll(watches, { timeout: TTL_SECONDS * 1000 }).toBeGreaterThanOrEqual(3);
      await own.etcdctl(by(lock.key, leaseId));
      const [ended, deletion] = await Promise.all([holder.ended("lock"), gone()]);

      // In the moment of the abort, it may be known only that the key is gone.
      expect(ended.reason.code).toBe("LOCK_LOST");
      expect(["deleted", loss]).toContain(ended.reason.loss);
      expect(ended.at).toBeLessThan(deletion.at + ttls(1 / 5));
      server[Symbol.dispose]();
    },
  );

  test.for([
    ["forth", HOUR_MS],
    ["back", -HOUR_MS],
  ] as const)("is not what a wall clock makes that jumps an hour %s", async ([way, ms], { expect }) => {
    await using crew = new Crew();
    const server = await observe(etcd.member.endpoint, `clock-${way}/`);
    const worker = await crew.start("worker", { execArgv: ["--import", SHIFT_DATE] });
    await worker.connect({ hosts: etcd.member.endpoint });
    await worker.session("session", { ttlSeconds: TTL_SECONDS });
    await worker.lock(`clock-${way}`, { as: "lock", source: "session" });

    const { moved } = await worker.shiftDate(ms);
    // The claim is that nothing happens during this time.
    await delay(2.2 * TTL_SECONDS * 1000);
    const runs = await worker.claims("lock");
    await worker.lock(`other-clock-${way}`, { as: "other", source: "session" });

    expect(Math.abs(moved - ms)).toBeLessThan(HOUR_MS / 60);
    expect(runs.at(-1)).toMatchObject({ held: true, aborted: false });
    expect(worker.states("session").map((it) => it.state)).not.toContain("lost");
    expect(server.seen.filter((event) => event.type === "DELETE")).toEqual([]);
    server[Symbol.dispose]();
  });
});
