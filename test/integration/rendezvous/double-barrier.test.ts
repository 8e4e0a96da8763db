// Double barriers on a real etcd. What is stored is read from etcd, beside what the members are told.
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { connect, DoubleBarrier, inspect, list, Mutex, Session } from "../../../src/index.js";
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
const barrier = (name: string, members: number) => new DoubleBarrier(two.cluster, name, members);
const keys = (name: string) => keysUnder(two.etcd, `${name}/`);
const records = (name: string) => keysUnder(two.etcd, `/leasehold/barrier/${name}//`);
const waiters = async (name: string) => (await keys(name)).filter(({ key }) => key.includes("/waiters/"));
const isPending = (promise: Promise<unknown>) => stillWaits(two.cluster, promise);
/** Until so many members are there. No `expect.poll`: it asks which test is running, and here several are. */
async function came(name: string, count: number): Promise<void> {
  // Without a pause, the tests beside this one would have a slow etcd.
  while ((await waiters(name)).length !== count) await delay(20);
}
/** The barrier is as if nobody had ever used it. */
const clean = async (name: string) => expect([...(await keys(name)), ...(await records(name))]).toEqual([]);

describe.concurrent("a double barrier", () => {
  test("opens when the last member has entered, and not before, and ends when the last has left", async ({
    expect,
  }) => {
    const [a, b] = [barrier("all", 3), new DoubleBarrier(two.session, "all", 3)];
    const c = new DoubleBarrier(two.holder, "all", 3);
    expect(a.state).toBe("outside");
    const entering = [a.enter(), b.enter()];
    await came("all", 2);
    expect(await isPending(Promise.race(entering))).toBe(true);
    await c.enter();
    await Promise.all(entering);
    expect([a.state, b.state, c.state]).toEqual(["inside", "inside", "inside"]);
    const leaving = [a.leave(), c.leave()];
    await came("all", 1);
    expect(await isPending(Promise.race(leaving))).toBe(true);
    await b.leave();
    await Promise.all(leaving);
    await clean("all");
  });

  test("of one member opens and ends at once, again and again", async ({ expect }) => {
    const one = barrier("one", 1);
    for (let n = 0; n < 3; n++) {
      await one.enter();
      await one.leave();
      expect(one.state).toBe("outside");
    }
    await clean("one");
  });

  test("is entered by the same members for a round after the other, without one that is ahead", async ({
    expect,
  }) => {
    const rounds = 20;
    const at = [0, 0, 0, 0];
    const party = async (n: number) => {
      const member = new DoubleBarrier(n % 2 ? two.holder : two.session, "rounds", at.length);
      for (let round = 0; round < rounds; round++) {
        await member.enter();
        at[n] = round + 1;
        // Nobody has begun the next round, and all are in this one before any leaves it.
        expect(Math.max(...at) - Math.min(...at)).toBeLessThanOrEqual(1);
        await member.leave();
        expect(Math.min(...at)).toBeGreaterThanOrEqual(round + 1);
      }
    };
    await Promise.all(at.map((_, n) => party(n)));
    await clean("rounds");
  });

  test("lets 100 members of several sessions in and out together", async ({ expect }) => {
    const sessions = await Promise.all(Array.from({ length: 5 }, () => Session.open(two.cluster)));
    const all = Array.from(
      { length: 100 },
      (_, n) => new DoubleBarrier(sessions[n % 5] as Session, "hundred", 100),
    );
    const first = all.slice(0, 99).map((each) => each.enter());
    await came("hundred", 99);
    expect(await isPending(Promise.race(first))).toBe(true);
    await all[99]?.enter();
    await Promise.all(first);
    const leaving = all.slice(1).map((each) => each.leave());
    await came("hundred", 1);
    expect(await isPending(Promise.race(leaving))).toBe(true);
    await all[0]?.leave();
    await Promise.all(leaving);
    await clean("hundred");
    await Promise.all(sessions.map((session) => session.close()));
  });

  test("turns a latecomer away, while its members wait, while they are inside, and while they leave", async ({
    expect,
  }) => {
    const [a, b, late] = [barrier("late", 2), barrier("late", 2), barrier("late", 2)];
    const full = { code: "BARRIER_FULL", barrierName: "late", members: 2 };
    await Promise.all([a.enter(), b.enter()]);
    await expect(late.enter()).rejects.toMatchObject(full);
    expect(late.state).toBe("outside");
    const leaving = a.leave();
    await came("late", 1);
    await expect(late.enter()).rejects.toMatchObject(full);
    expect(await isPending(leaving)).toBe(true);
    await b.leave();
    await leaving;
    const entering = late.enter();
    await a.enter();
    await entering;
    await Promise.all([a.leave(), late.leave()]);
    await clean("late");
  });

  test("of more callers than members lets that number in, and turns the others away", async ({ expect }) => {
    const all = Array.from(
      { length: 10 },
      (_, n) => new DoubleBarrier(n % 2 ? two.holder : two.session, "crowd", 4),
    );
    const entered = await Promise.all(all.map((each) => reasonOf(each.enter())));
    const inside = all.filter(({ state }) => state === "inside");
    expect(inside).toHaveLength(4);
    expect(entered.filter((error) => error !== undefined)).toHaveLength(6);
    for (const error of entered) if (error) expect(error).toMatchObject({ code: "BARRIER_FULL" });
    await Promise.all(inside.map((each) => each.leave()));
    await clean("crowd");
  });

  test("turns away who waits for another number of members, and the first ones wait on", async ({
    expect,
  }) => {
    const three = barrier("number", 3);
    const entering = three.enter();
    await came("number", 1);
    await expect(barrier("number", 2).enter()).rejects.toMatchObject({
      ...{ code: "COUNT_MISMATCH", lockName: "number", count: 2, found: 3 },
    });
    expect(await isPending(entering)).toBe(true);
    const others = [barrier("number", 3), barrier("number", 3)];
    await Promise.all([entering, ...others.map((each) => each.enter())]);
    await Promise.all([three, ...others].map((each) => each.leave()));
    await clean("number");
  });

  test("does the work of each member between them: `within`", async ({ expect }) => {
    const inside: number[] = [];
    const results = await Promise.all(
      [1, 2, 3].map((n) =>
        barrier("within", 3).within(() => {
          inside.push(n);
          return n * n;
        }),
      ),
    );
    expect(results).toEqual([1, 4, 9]);
    expect(inside).toHaveLength(3);
    await clean("within");
  });

  test("is left by a member whose work throws, and the others are not held up", async ({ expect }) => {
    const failure = new Error("no paper");
    const failing = reasonOf(barrier("throws", 2).within(() => Promise.reject(failure)));
    const other = barrier("throws", 2).within(() => "done");
    expect(await failing).toBe(failure);
    expect(await other).toBe("done");
    await clean("throws");
  });

  test("is entered and left in turn: everything else is a mistake", async ({ expect }) => {
    const member = barrier("turns", 2);
    await expect(member.leave()).rejects.toThrow(/Cannot leave the barrier "turns": this member is outside/);
    const entering = member.enter();
    await expect(member.enter()).rejects.toThrow(/this member is entering/);
    const other = barrier("turns", 2);
    await Promise.all([entering, other.enter()]);
    await expect(member.enter()).rejects.toThrow(TypeError);
    await Promise.all([member.leave(), other.leave()]);
    for (const members of [0, 101, 1.5, NaN])
      expect(() => barrier("turns", members)).toThrow(
        /Expected members to be a whole number from 1 to 100, got/,
      );
    expect(() => barrier("turns", undefined as never)).toThrow(TypeError);
    expect(() => barrier("turns/", 2)).toThrow(/name/);
    await expect(member.enter({ onCrash: "stay" as never })).rejects.toThrow(/onCrash/);
    expect(member.state).toBe("outside");
  });

  test("puts what Go's client puts, below its name, where a lock of that name waits for it", async ({
    expect,
  }) => {
    const [a, b] = [new DoubleBarrier(two.holder, "layout", 2), new DoubleBarrier(two.holder, "layout", 2)];
    await Promise.all([a.enter(), b.enter()]);
    const stored = await keys("layout");
    expect(stored.map(({ key }) => key.replace(/[^/]*$/, ""))).toEqual([
      "layout/",
      "layout/waiters/",
      "layout/waiters/",
    ]);
    expect(stored[0]).toMatchObject({ key: "layout/ready", leaseId: 0n });
    expect(stored.slice(1).map(({ leaseId }) => leaseId)).toEqual([two.holder.leaseId, two.holder.leaseId]);
    expect(await new Mutex(two.session, "layout").tryLock()).toBeUndefined();
    expect(await inspect(two.cluster, "layout")).toMatchObject({ kind: "unknown" });
    expect((await list(two.cluster, "layout")).locks.map(({ name }) => name)).toContain("layout");
    await Promise.all([a.leave(), b.leave()]);
    await (await new Mutex(two.session, "layout").lock()).release();
  });
});

describe.concurrent("a member that waits to enter", () => {
  test("is told of one whose session ends, and has left; the next round goes on without a trace of it", async ({
    expect,
  }) => {
    const dying = await Session.open(two.cluster, { owner: "the dying one" });
    const member = barrier("dies", 3);
    const entering = reasonOf(member.enter());
    const gone = reasonOf(new DoubleBarrier(dying, "dies", 3).enter());
    await came("dies", 2);
    expect(await isPending(Promise.race([entering, gone]))).toBe(true);
    await revoke(two.etcd, dying.leaseId);
    expect(await entering).toMatchObject({
      ...{ code: "BARRIER_BROKEN", barrierName: "dies", phase: "enter", owners: ["the dying one"] },
      message: 'Barrier "dies" is broken: a member (the dying one) ended before the barrier opened',
    });
    expect(await gone).toMatchObject({ code: "SESSION_LOST" });
    expect(await keys("dies")).toEqual([]);
    const again = [member, barrier("dies", 3), barrier("dies", 3)];
    await Promise.all(again.map((each) => each.enter()));
    await Promise.all(again.map((each) => each.leave()));
  });

  test("waits for another one in its place, if it has chosen so", async ({ expect }) => {
    const dying = await Session.open(two.cluster);
    const member = barrier("replaced", 2);
    const gone = reasonOf(new DoubleBarrier(dying, "replaced", 3).enter());
    await came("replaced", 1);
    const patient = new DoubleBarrier(two.holder, "replaced", 3);
    const entering = patient.enter({ onCrash: "continue" });
    await came("replaced", 2);
    expect(await isPending(entering)).toBe(true);
    await dying.close();
    expect(await gone).toMatchObject({ code: "SESSION_CLOSED" });
    await came("replaced", 1);
    const [b, c] = [barrier("replaced", 3), barrier("replaced", 3)];
    const second = b.enter();
    expect(await isPending(Promise.race([entering, second]))).toBe(true);
    await Promise.all([second, c.enter(), entering]);
    await Promise.all([b, c, patient].map((each) => each.leave()));
    expect(member.state).toBe("outside");
  });

  test("gives up at an abort, and after its time: it has left, and the others wait for another one", async ({
    expect,
  }) => {
    const [patient, aborted, late] = [barrier("gives-up", 3), barrier("gives-up", 3), barrier("gives-up", 3)];
    const entering = patient.enter();
    await came("gives-up", 1);
    const reason = new Error("enough");
    await expect(aborted.enter({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const aborting = reasonOf(aborted.enter({ signal: controller.signal }));
    await came("gives-up", 2);
    controller.abort(reason);
    expect(await aborting).toBe(reason);
    expect(aborted.state).toBe("outside");
    await came("gives-up", 1);
    await expect(late.enter({ timeoutMs: 1500 })).rejects.toMatchObject({
      code: "WAIT_TIMEOUT",
      message: '"gives-up" did not open within 1500 ms: 1 of 3 members are missing',
    });
    await came("gives-up", 1);
    expect(await isPending(entering)).toBe(true);
    await Promise.all([entering, aborted.enter(), late.enter()]);
    await Promise.all([patient, aborted, late].map((each) => each.leave()));
    await clean("gives-up");
  });

  test("is told when its own key is deleted, or its cluster closed", async ({ expect }) => {
    const deleted = barrier("deleted", 2);
    const entering = reasonOf(deleted.enter());
    await came("deleted", 1);
    const [own] = await waiters("deleted");
    await deleteKey(two.etcd, own?.key ?? "");
    expect(await entering).toMatchObject({ code: "BARRIER_BROKEN", phase: "enter" });
    const cluster = connect({ hosts: two.etcd.endpoints });
    const closing = reasonOf(new DoubleBarrier(cluster, "closed", 2).enter());
    await came("closed", 1);
    await cluster.close();
    expect(await closing).toMatchObject({ code: "SESSION_CLOSED" });
    await came("closed", 0);
  });
});

describe.concurrent("a member that leaves", () => {
  test("waits no longer for one whose session ends, and is told who", async ({ expect }) => {
    const dying = await Session.open(two.cluster, { owner: "dead inside" });
    const [a, b] = [barrier("dead-inside", 3), barrier("dead-inside", 3)];
    const dead = new DoubleBarrier(dying, "dead-inside", 3);
    await Promise.all([a.enter(), b.enter(), dead.enter()]);
    const leaving = [reasonOf(a.leave()), b.leave({ onCrash: "continue" })];
    await came("dead-inside", 1);
    expect(await isPending(Promise.race(leaving))).toBe(true);
    await revoke(two.etcd, dying.leaseId);
    expect(await leaving[0]).toMatchObject({
      ...{ code: "BARRIER_BROKEN", phase: "leave", owners: ["dead inside"], barrierName: "dead-inside" },
    });
    await leaving[1];
    await expect(dead.leave()).rejects.toMatchObject({ code: "SESSION_LOST" });
    expect([a.state, dead.state]).toEqual(["outside", "outside"]);
    const again = [a, b, barrier("dead-inside", 3)];
    await Promise.all(again.map((each) => each.enter()));
    await Promise.all(again.map((each) => each.leave()));
    expect(await keys("dead-inside")).toEqual([]);
  });

  test("is told of one that had died before its call", async ({ expect }) => {
    const dying = await Session.open(two.cluster, { owner: "dead before" });
    const a = barrier("dead-before", 2);
    await Promise.all([a.enter(), new DoubleBarrier(dying, "dead-before", 2).enter()]);
    await dying.close();
    await came("dead-before", 1);
    await expect(a.leave()).rejects.toMatchObject({ code: "BARRIER_BROKEN", owners: ["dead before"] });
  });

  test("rejects after its time and at an abort, and has left nevertheless", async ({ expect }) => {
    const [a, b, c] = [barrier("slow", 3), barrier("slow", 3), barrier("slow", 3)];
    await Promise.all([a.enter(), b.enter(), c.enter()]);
    await expect(a.leave({ timeoutMs: 1500 })).rejects.toMatchObject({
      code: "WAIT_TIMEOUT",
      message: '"slow" did not open within 1500 ms: 2 of 3 members have not left',
    });
    const reason = new Error("enough");
    await expect(b.leave({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await came("slow", 1);
    await c.leave();
    await clean("slow");
  });
});

test("a round whose members have all died inside doesn't hold up the next one", async () => {
  const dying = await Session.open(two.cluster);
  const dead = [new DoubleBarrier(dying, "ghost", 2), new DoubleBarrier(dying, "ghost", 2)];
  await Promise.all(dead.map((each) => each.enter()));
  await revoke(two.etcd, dying.leaseId);
  expect((await keys("ghost")).map(({ key }) => key)).toEqual(["ghost/ready"]);
  const [a, b] = [barrier("ghost", 2), barrier("ghost", 2)];
  const entering = a.enter();
  await came("ghost", 1);
  expect(await isPending(entering)).toBe(true);
  await Promise.all([entering, b.enter()]);
  await Promise.all([a.leave(), b.leave()]);
  expect(await keys("ghost")).toEqual([]);
});

describe("a wait whose connection breaks", () => {
  test("goes on with the state of etcd when that has forgotten what happened meanwhile", async () => {
    await using far = await behindTcpProxy(two.etcd);
    const [a, b] = [new DoubleBarrier(far.cluster, "broken", 2), barrier("broken", 2)];
    const entering = a.enter();
    await came("broken", 1);
    expect(await stillWaits(far.cluster, entering)).toBe(true);
    await far.proxy.mode("refuse");
    await b.enter();
    await compact(two.etcd);
    await far.proxy.mode("pass");
    await entering;
    const leaving = a.leave();
    await came("broken", 1);
    expect(await stillWaits(far.cluster, leaving)).toBe(true);
    await far.proxy.mode("refuse");
    await b.leave({ onCrash: "continue" });
    // The next round begins before the first member has heard that its own is over.
    const next = barrier("broken", 2).enter();
    await came("broken", 1);
    await compact(two.etcd);
    await far.proxy.mode("pass");
    await leaving;
    await b.enter();
    await next;
  });
});
