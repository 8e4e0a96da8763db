import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, type ExpectStatic, test } from "vitest";
import { claimsAfterSignal, lastClaim, type Run } from "../../support/fixtures/claims.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { observe } from "../../support/clients/observer.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { Crew, SHIFT_DATE } from "../../support/programs/workers.js";

const TTL_SECONDS = 3;
const HOUR_MS = 3_600_000;
const now = () => process.hrtime.bigint();
/** A multiple of the TTL, in nanoseconds. */
const ttls = (factor: number) => BigInt(Math.round(factor * TTL_SECONDS * 1e9));
/** Deadline of a hold whose last renewal was sent no later than `sent`. */
const latestDeadline = (sent: bigint) => sent + ttls(0.9);

/** The deadline that a hold had reported: later renewals can only move it further. */
const deadlineKnown = ({ at, remainingMs }: { at: bigint; remainingMs: number }) =>
  at + BigInt(Math.round(remainingMs * 1e6));

const EXPIRED = { code: "LOCK_LOST", loss: "expired", cause: { code: "SESSION_LOST", loss: "expired" } };

/** One worker holds `name` on a separate connection, and another waits behind it on an undisturbed one. */
async function contend(crew: Crew, etcd: EtcdCluster, name: string, hosts = etcd.member.endpoint) {
  const server = await observe(etcd.member.endpoint, `${name}/`);
  const [holder, waiter] = await Promise.all([crew.start("holder"), crew.start("waiter")]);
  await Promise.all([holder.connect({ hosts }), waiter.connect({ hosts: etcd.member.endpoint })]);
  const { leaseId } = await holder.session("session", { ttlSeconds: TTL_SECONDS });
  // It must survive the fault that ends the holder.
  await waiter.session("session", { ttlSeconds: 4 * TTL_SECONDS });
  const lock = await holder.lock(name, { as: "lock", source: "session" });
  const next = waiter.lock(name, { as: "lock", source: "session" });
  next.catch(() => {});
  await server.first((event) => event.type === "PUT" && event.key !== lock.key);
  return { server, holder, lock, leaseId, next, gone: () => server.deleted(lock.key, lock.fence) };
}

/** Once the hold is over, it stays over, and nothing is claimed after the signal. */
function expectOneEnd(expect: ExpectStatic, runs: Run[]) {
  expect(claimsAfterSignal(runs)).toEqual([]);
  expect(
    runs
      .map((run) => run.held)
      .join()
      .replace(/(true,?)+/, ""),
  ).not.toContain("true");
}

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

  test("is told as revoked when its lease is revoked", async ({ expect }) => {
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

  test("is told as deleted within a fraction of the TTL when somebody deletes its key", async ({
    expect,
  }) => {
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

      // The test's own observer, the waiter's two watches, and the holder's watch on its own key.
      await expect.poll(watches, { timeout: TTL_SECONDS * 1000 }).toBeGreaterThanOrEqual(4);
      await own.etcdctl(by(lock.key, leaseId));
      const [ended, deletion] = await Promise.all([holder.ended("lock"), gone()]);

      expect(ended.reason).toMatchObject({ code: "LOCK_LOST", loss });
      expect(ended.at).toBeLessThan(deletion.at + ttls(1 / 5));
      server[Symbol.dispose]();
    },
  );

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
