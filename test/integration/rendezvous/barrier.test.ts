// Barriers on a real etcd. What is stored is read from etcd, beside what the barrier says.
import { describe, expect, test } from "vitest";
import { Barrier, connect, Mutex, Session } from "../../../src/index.js";
import {
  behindTcpProxy,
  compact,
  deleteKey,
  keysUnder,
  revoke,
  stillWaits,
} from "../../support/fixtures/rendezvous.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const barrier = (name: string) => new Barrier(two.cluster, name);
const stored = async (name: string) => [
  ...(await keysUnder(two.etcd, name)),
  ...(await keysUnder(two.etcd, `/leasehold/barrier/${name}//hold`)),
];
/** What keeps late attempts of `hold` from closing it. */
const attempts = (name: string) => keysUnder(two.etcd, `/leasehold/barrier/${name}//by/`);
const isPending = (promise: Promise<unknown>) => stillWaits(two.cluster, promise);

describe.concurrent("a barrier", () => {
  test("that somebody else has released does not keep a session that another one replaces", async ({
    expect,
  }) => {
    const session = { ttlSeconds: 2, releaseDelayMs: 60_000 };
    await using cluster = connect({ hosts: two.etcd.endpoints, session });
    const first = await cluster.session();
    const held = new Barrier(cluster, "replaced");
    await held.hold({ onCrash: "break" });
    await barrier("replaced").release();
    await held.release();

    await revoke(two.etcd, first.leaseId | 1n);

    await expect.poll(async () => (await cluster.session()).leaseId).not.toBe(first.leaseId);
    await expect.poll(() => first.state).toBe("closed");
  });

  test("that nobody holds lets everybody pass; releasing it does nothing", async ({ expect }) => {
    await barrier("open").wait();
    await barrier("open").release();
    expect(await stored("open")).toEqual([]);
  });

  test("that is held stops all who come, until anybody releases it, and may be held again", async ({
    expect,
  }) => {
    const [a, b] = [barrier("held"), new Barrier(two.session, "held")];
    for (let round = 0; round < 2; round++) {
      expect(await a.hold()).toBe(true);
      expect(await b.hold()).toBe(false);
      const waits = [a.wait(), b.wait(), barrier("held").wait()];
      expect(await isPending(Promise.race(waits))).toBe(true);
      await b.release();
      await Promise.all(waits);
      expect(await stored("held")).toEqual([]);
    }
  });

  test("is held by one of many callers", async ({ expect }) => {
    const held = await Promise.all(Array.from({ length: 20 }, () => barrier("race").hold()));
    expect(held.filter(Boolean)).toHaveLength(1);
    await barrier("race").release();
  });

  test("outlives the process that holds it, in the one key that Go's client has, too", async ({ expect }) => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    await new Barrier(cluster, "stays").hold();
    await cluster.close();
    expect(await stored("stays")).toMatchObject([{ key: "stays", leaseId: 0n }]);
    const leases = (await attempts("stays")).map(({ leaseId }) => leaseId);
    expect(leases).toHaveLength(1);
    expect(leases).not.toContain(0n);
    const waiting = barrier("stays").wait();
    expect(await isPending(waiting)).toBe(true);
    await deleteKey(two.etcd, "stays");
    await waiting;
  });

  test("holds up no lock of its name", async ({ expect }) => {
    await barrier("both").hold();
    expect(await new Mutex(two.session, "both").tryLock()).toBeDefined();
    await barrier("both").release();
  });

  test("says what is wrong with its arguments", async ({ expect }) => {
    expect(() => barrier("")).toThrow(/name/);
    expect(() => new Barrier("localhost" as never, "bad")).toThrow(/a Cluster or a Session/);
    await expect(barrier("bad").hold({ onCrash: "reject" as never })).rejects.toThrow(
      /Expected onCrash to be "stay" or "break", got "reject"/,
    );
    await expect(barrier("bad").wait({ onCrash: "break" } as never)).rejects.toThrow(
      /Unknown option onCrash of wait/,
    );
  });
});

describe.concurrent("a barrier that breaks with its holder", () => {
  test("is on the session of the holder, and opens with a release as any does", async ({ expect }) => {
    const holder = new Barrier(two.holder, "leased");
    expect(await holder.hold({ onCrash: "break" })).toBe(true);
    expect((await stored("leased")).map(({ leaseId }) => leaseId)).toEqual([two.holder.leaseId, 0n]);
    const waiting = barrier("leased").wait();
    expect(await isPending(waiting)).toBe(true);
    await barrier("leased").release();
    await waiting;
    expect(await stored("leased")).toEqual([]);
  });

  test("tells those who wait, and all who come, until somebody releases it", async ({ expect }) => {
    const dying = await Session.open(two.cluster, { owner: "the holder that dies" });
    await new Barrier(dying, "breaks").hold({ onCrash: "break" });
    const waiting = reasonOf(barrier("breaks").wait());
    expect(await isPending(waiting)).toBe(true);
    await revoke(two.etcd, dying.leaseId);
    const broken = {
      code: "BARRIER_BROKEN",
      phase: "hold",
      owners: ["the holder that dies"],
      barrierName: "breaks",
    };
    expect(await waiting).toMatchObject(broken);
    await expect(barrier("breaks").wait()).rejects.toMatchObject(broken);
    await expect(barrier("breaks").hold()).rejects.toMatchObject(broken);
    await barrier("breaks").release();
    await barrier("breaks").wait();
    expect(await barrier("breaks").hold()).toBe(true);
    await barrier("breaks").release();
    expect(await stored("breaks")).toEqual([]);
  });

  test("tells nobody who waits for a later hold", async ({ expect }) => {
    const dying = await Session.open(two.cluster);
    await new Barrier(dying, "later").hold({ onCrash: "break" });
    await dying.close();
    await barrier("later").release();
    await new Barrier(two.holder, "later").hold({ onCrash: "break" });
    const waiting = barrier("later").wait();
    expect(await isPending(waiting)).toBe(true);
    await barrier("later").release();
    await waiting;
  });
});

describe.concurrent("a wait for a barrier", () => {
  test("ends after its time, and names the holder", async ({ expect }) => {
    await new Barrier(two.holder, "timeout").hold({ onCrash: "break" });
    await expect(barrier("timeout").wait({ timeoutMs: 1500 })).rejects.toMatchObject({
      code: "WAIT_TIMEOUT",
      message: '"timeout" did not open within 1500 ms: it is still held by the holder',
    });
  });

  test("ends with the reason of an abort, and when its cluster is closed", async ({ expect }) => {
    await barrier("ends").hold();
    const reason = new Error("enough");
    await expect(barrier("ends").wait({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const cluster = connect({ hosts: two.etcd.endpoints });
    const aborting = reasonOf(barrier("ends").wait({ signal: controller.signal }));
    const closing = reasonOf(new Barrier(cluster, "ends").wait());
    expect(await isPending(Promise.race([aborting, closing]))).toBe(true);
    controller.abort(reason);
    await cluster.close();
    expect(await aborting).toBe(reason);
    expect(await closing).toMatchObject({ code: "SESSION_CLOSED" });
    await barrier("ends").release();
  });
});

test("a wait goes on with the state of etcd when that has forgotten what happened meanwhile", async () => {
  await using far = await behindTcpProxy(two.etcd);
  await barrier("forgotten").hold();
  const waiting = new Barrier(far.cluster, "forgotten").wait();
  expect(await stillWaits(far.cluster, waiting)).toBe(true);
  await far.proxy.mode("refuse");
  await barrier("forgotten").release();
  // Held again: the wait was for the hold before.
  await barrier("forgotten").hold();
  await compact(two.etcd);
  await far.proxy.mode("pass");
  await waiting;
});
