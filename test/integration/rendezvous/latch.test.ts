// Count-down latches on a real etcd. What is stored is read from etcd, beside what the latch says.
import { describe, expect, test } from "vitest";
import { connect, CountDownLatch, Mutex, Session } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { behindTcpProxy, compact, keysUnder, revoke, stillWaits } from "../../support/fixtures/rendezvous.js";

const two = twoSessions(20);
const keys = (name: string) => keysUnder(two.etcd, `/leasehold/latch/${name}//`);
const counted = async (name: string) => (await keys(name)).filter(({ key }) => key.includes("/counted/"));
const latch = (name: string, count: number) => new CountDownLatch(two.cluster, name, count);
/** What kinds of keys there are. */
const parts = (all: readonly { readonly key: string }[]) =>
  all.map(({ key }) => (key.endsWith("//latch") ? "latch" : key.split("/").at(-2))).sort();
const isPending = (promise: Promise<unknown>) => stillWaits(two.cluster, promise);

describe.concurrent("a latch", () => {
  test("opens for all who wait with its last count, in whichever process, and stays open", async ({
    expect,
  }) => {
    const [a, b] = [latch("opens", 3), new CountDownLatch(two.session, "opens", 3)];
    expect(await a.count()).toBe(3);
    const waits = [a.wait(), a.wait(), b.wait()];
    await a.countDown();
    await b.countDown();
    expect(await b.count()).toBe(1);
    expect(await isPending(Promise.race(waits))).toBe(true);
    await a.countDown();
    await Promise.all(waits);
    expect([await a.count(), await b.count()]).toEqual([0, 0]);
    await latch("opens", 3).wait();
  });

  test("counts each of many concurrent counts once, and has a key for each", async ({ expect }) => {
    const [a, b] = [latch("many", 100), new CountDownLatch(two.holder, "many", 100)];
    const waiting = b.wait();
    await Promise.all(Array.from({ length: 99 }, (_, n) => (n % 2 ? a : b).countDown()));
    expect(await a.count()).toBe(1);
    expect(await counted("many")).toHaveLength(99);
    expect(await isPending(waiting)).toBe(true);
    await b.countDown();
    await waiting;
  });

  test("of one count opens with the first, in one request", async ({ expect }) => {
    const one = latch("single", 1);
    const waiting = one.wait();
    await one.countDown();
    await waiting;
    expect(await one.count()).toBe(0);
  });

  test("that is open takes no further count: no key is put", async ({ expect }) => {
    const open = latch("over", 2);
    await open.countDown();
    await open.countDown();
    await Promise.all([open.countDown(), open.countDown(), latch("over", 2).countDown()]);
    expect(await open.count()).toBe(0);
    expect(await counted("over")).toHaveLength(2);
  });

  test("counts an ID once, however often and by whom", async ({ expect }) => {
    const jobs = latch("ids", 2);
    const id = "jobs/17 – ä";
    await Promise.all([jobs.countDown({ id }), latch("ids", 2).countDown({ id })]);
    await jobs.countDown({ id });
    expect(await jobs.count()).toBe(1);
    await jobs.countDown({ id: "jobs/18" });
    expect(await jobs.count()).toBe(0);
  });

  test("has keys of one lease, that etcd deletes by itself", async ({ expect }) => {
    const leased = new CountDownLatch(two.cluster, "leased", 3, { ttlMs: 3_600_000 });
    await leased.countDown();
    await latch("leased", 3).countDown();
    const all = await keys("leased");
    expect(all).toHaveLength(3);
    expect(new Set(all.map(({ leaseId }) => leaseId)).size).toBe(1);
    const { grantedTTL } = (await two.etcd.member.gateway("/v3/lease/timetolive", {
      ID: `${all[0]?.leaseId}`,
    })) as {
      grantedTTL: string;
    };
    expect(Number(grantedTTL)).toBeGreaterThanOrEqual(3600);
    expect(Number(grantedTTL)).toBeLessThanOrEqual(3600 * 1.125 + 1);
  });

  test("whose lease has ended is new: all counts are missing, and those who wait are told", async ({
    expect,
  }) => {
    // With a lease of its own: latches with the same time share one.
    const ended = new CountDownLatch(two.cluster, "ended", 2, { ttlMs: 7_200_000 });
    await ended.countDown();
    const waiting = reasonOf(ended.wait());
    const [first] = await keys("ended");
    expect(await isPending(waiting)).toBe(true);
    await revoke(two.etcd, first?.leaseId ?? 0n);
    expect(await waiting).toMatchObject({ code: "LATCH_BROKEN", why: "reset", latchName: "ended" });
    expect(await ended.count()).toBe(2);
    await ended.countDown();
    await ended.countDown();
    await ended.wait();
  });

  test("has a new round after a reset, which may have another number; those who waited are told", async ({
    expect,
  }) => {
    const before = latch("reset", 2);
    await before.reset();
    expect(await keys("reset")).toEqual([]);
    await before.countDown();
    const waiting = reasonOf(before.wait());
    expect(await isPending(waiting)).toBe(true);
    await latch("reset", 3).reset();
    expect(await waiting).toMatchObject({ code: "LATCH_BROKEN", why: "reset" });
    const after = latch("reset", 3);
    expect(await after.count()).toBe(3);
    await Promise.all([after.countDown(), after.countDown(), after.countDown()]);
    await after.wait();
    await after.reset();
    expect(await after.count()).toBe(3);
    await expect(before.countDown()).rejects.toMatchObject({ code: "COUNT_MISMATCH", count: 2, found: 3 });
  });

  test("refuses those who use its name with another number, and counts nothing of theirs", async ({
    expect,
  }) => {
    const three = latch("mismatch", 3);
    await three.countDown();
    const four = latch("mismatch", 4);
    const error = { code: "COUNT_MISMATCH", lockName: "mismatch", count: 4, found: 3 };
    await expect(four.countDown()).rejects.toMatchObject(error);
    await expect(four.wait()).rejects.toMatchObject(error);
    await expect(four.count()).rejects.toMatchObject(error);
    await expect(four.enlist()).rejects.toMatchObject(error);
    expect(await three.count()).toBe(2);
  });

  test("holds up no lock of its name, and the other way round", async ({ expect }) => {
    const both = latch("both", 1);
    const lock = await new Mutex(two.holder, "both").lock();
    await both.countDown();
    await lock.release();
    expect(await new Mutex(two.session, "both").tryLock()).toBeDefined();
    expect(await both.count()).toBe(0);
  });

  test("says what is wrong with its arguments", async ({ expect }) => {
    for (const count of [0, -1, 1.5, 10_001, NaN])
      expect(() => latch("bad", count)).toThrow(/Expected count to be a whole number from 1 to 10000, got/);
    expect(() => latch("bad", undefined as never)).toThrow(TypeError);
    expect(() => latch("bad", "3" as never)).toThrow(/Expected count/);
    expect(() => latch("/bad", 1)).toThrow(/name/);
    expect(() => new CountDownLatch({} as never, "bad", 1)).toThrow(/a Cluster or a Session/);
    expect(() => new CountDownLatch(two.cluster, "bad", 1, { ttlMs: 1 })).toThrow(/ttlMs/);
    expect(() => new CountDownLatch(two.cluster, "bad", 1, { ttl: 1 } as never)).toThrow(
      /did you mean ttlMs/,
    );
    await expect(latch("bad", 1).wait({ onCrash: "ignore" as never })).rejects.toThrow(
      /Expected onCrash to be "reject" or "continue", got "ignore"/,
    );
    await expect(latch("bad", 1).countDown({ id: "" })).rejects.toThrow(/id/);
    await expect(latch("bad", 1).wait({ timeout: 1 } as never)).rejects.toThrow(/did you mean timeoutMs/);
  });
});

describe.concurrent("a wait for a latch", () => {
  test("ends after its time, says what is missing, and disturbs no other", async ({ expect }) => {
    const slow = latch("timeout", 3);
    await slow.countDown();
    const other = slow.wait();
    await expect(slow.wait({ timeoutMs: 1500 })).rejects.toMatchObject({
      code: "WAIT_TIMEOUT",
      lockName: "timeout",
      timeoutMs: 1500,
      message: '"timeout" did not open within 1500 ms: 2 of 3 counts are missing',
    });
    await slow.countDown();
    await slow.countDown();
    await other;
  });

  test("ends with the reason of an abort, before its call and during it", async ({ expect }) => {
    const aborted = latch("abort", 1);
    const reason = new Error("enough");
    await expect(aborted.wait({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const waiting = reasonOf(aborted.wait({ signal: controller.signal }));
    expect(await isPending(waiting)).toBe(true);
    controller.abort(reason);
    expect(await waiting).toBe(reason);
  });

  test("ends when its cluster is closed", async ({ expect }) => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    const closing = new CountDownLatch(cluster, "close", 1);
    const waiting = reasonOf(closing.wait());
    expect(await isPending(waiting)).toBe(true);
    await cluster.close();
    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
    await expect(closing.wait()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
    await expect(closing.countDown()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
  });
});

describe.concurrent("an enlisted counter", () => {
  test("counts once, and its place in etcd becomes the count", async ({ expect }) => {
    const enlisting = latch("enlist", 2);
    const counter = await enlisting.enlist();
    expect(parts(await keys("enlist"))).toEqual(["alive", "enlisted", "latch"]);
    expect(await enlisting.count()).toBe(2);
    await Promise.all([counter.countDown(), counter.countDown()]);
    await counter.countDown();
    await counter.leave();
    expect(await enlisting.count()).toBe(1);
    expect(parts(await keys("enlist"))).toEqual(["counted", "latch"]);
    await enlisting.countDown();
    await enlisting.wait();
    const late = await enlisting.enlist();
    await late.countDown();
    expect(await keys("enlist")).toHaveLength(3);
  });

  test("has no use of its session when the latch was open", async ({ expect }) => {
    const session = { ttlSeconds: 2, releaseDelayMs: 60_000 };
    await using cluster = connect({ hosts: two.etcd.endpoints, session });
    const first = await cluster.session();
    await latch("enlist-late", 1).countDown();
    const counter = await new CountDownLatch(cluster, "enlist-late", 1).enlist();
    await counter.countDown();

    // Without its delay lease, a session is replaced, and ends when nothing uses it.
    await revoke(two.etcd, first.leaseId | 1n);

    await expect.poll(async () => (await cluster.session()).leaseId).not.toBe(first.leaseId);
    await expect.poll(() => first.state, { timeout: 5000 }).toBe("closed");
  });

  test("that leaves is no crash", async ({ expect }) => {
    const leaving = latch("leave", 1);
    const counter = await leaving.enlist();
    const waiting = leaving.wait();
    await counter.leave();
    await counter.leave();
    await expect(counter.countDown()).rejects.toThrow(/has left the latch/);
    expect(await isPending(waiting)).toBe(true);
    await leaving.countDown();
    await waiting;
  });

  test("whose session ends is told to those who wait, now and later; others go on, and open it", async ({
    expect,
  }) => {
    const dying = await Session.open(two.cluster, { owner: "the dying one" });
    const crashed = latch("crash", 2);
    const counter = await new CountDownLatch(dying, "crash", 2).enlist();
    const [told, patient] = [reasonOf(crashed.wait()), crashed.wait({ onCrash: "continue" })];
    expect(await isPending(Promise.race([told, patient]))).toBe(true);
    await revoke(two.etcd, dying.leaseId);
    const broken = { code: "LATCH_BROKEN", why: "crashed", owner: "the dying one", latchName: "crash" };
    expect(await told).toMatchObject(broken);
    await expect(crashed.wait()).rejects.toMatchObject(broken);
    await expect(counter.countDown()).rejects.toMatchObject({ code: "SESSION_LOST" });
    expect(counter.signal.aborted).toBe(true);
    expect(await crashed.count()).toBe(2);
    await crashed.countDown();
    await crashed.countDown();
    await patient;
    await crashed.wait();
  });

  test("is told when the latch was reset", async ({ expect }) => {
    const reset = latch("reset-counter", 1);
    const counter = await reset.enlist();
    await reset.reset();
    await expect(counter.countDown()).rejects.toMatchObject({ code: "LATCH_BROKEN", why: "reset" });
    expect(await reset.count()).toBe(1);
  });
});

describe("a wait whose connection breaks", () => {
  test("goes on with what has happened meanwhile", async () => {
    await using far = await behindTcpProxy(two.etcd);
    const waiting = new CountDownLatch(far.cluster, "broken", 2).wait();
    const near = latch("broken", 2);
    await near.countDown();
    expect(await stillWaits(far.cluster, waiting)).toBe(true);
    await far.proxy.mode("refuse");
    await near.countDown();
    await far.proxy.mode("pass");
    await waiting;
  });

  test("goes on with the state of etcd when that has forgotten what happened meanwhile", async () => {
    await using far = await behindTcpProxy(two.etcd);
    const [opens, dies] = ["forgotten", "forgotten-crash"];
    const waiting = new CountDownLatch(far.cluster, opens, 3).wait();
    const told = reasonOf(new CountDownLatch(far.cluster, dies, 1).wait());
    const near = latch(opens, 3);
    await near.countDown();
    const dying = await Session.open(two.cluster, { owner: "forgotten" });
    await new CountDownLatch(dying, dies, 1).enlist();
    expect(await stillWaits(far.cluster, Promise.race([waiting, told]))).toBe(true);
    await far.proxy.mode("refuse");
    await Promise.all([near.countDown(), near.countDown()]);
    await revoke(two.etcd, dying.leaseId);
    await compact(two.etcd);
    await far.proxy.mode("pass");
    await waiting;
    expect(await told).toMatchObject({ code: "LATCH_BROKEN", why: "crashed", owner: "forgotten" });
  });

  test("says that etcd does not answer when its time passes meanwhile", async () => {
    await using far = await behindTcpProxy(two.etcd);
    const waiting = reasonOf(new CountDownLatch(far.cluster, "silent", 1).wait({ timeoutMs: 1500 }));
    expect(await stillWaits(far.cluster, waiting)).toBe(true);
    await far.proxy.mode("refuse");
    expect(await waiting).toMatchObject({ code: "ETCD_UNAVAILABLE" });
  });
});
