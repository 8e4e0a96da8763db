import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import {
  forceRelease,
  inspect,
  list,
  Mutex,
  once,
  Semaphore,
  Session,
  watchQueue,
  type Lock,
} from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(4);
const { queued } = two;

/** A job that ends when it is told to. */
function job() {
  let end!: (value: string) => void;
  let begin!: (lock: Lock) => void;
  const ended = new Promise<string>((resolve) => (end = resolve));
  const begun = new Promise<Lock>((resolve) => (begin = resolve));
  return { begun, end, work: (lock: Lock) => (begin(lock), ended) };
}

const never = (): never => {
  throw new Error("this work must not run");
};
const DONE = { ran: false, reason: "done", run: { owner: "the holder", failed: false } };

describe("once", () => {
  test("runs the work of a slot, and says to all later callers that it is done", async () => {
    expect(await once(two.holder, "plain", 7, () => "value")).toEqual({ ran: true, value: "value" });

    const second = await once(two.session, "plain", 7, never);
    expect(second).toMatchObject(DONE);
    expect(second).toHaveProperty("run.since", expect.any(Date));
    expect(await once(two.holder, "plain", 7, never)).toMatchObject(DONE);
    expect(await once(two.session, "plain", 8, () => 8)).toEqual({ ran: true, value: 8 });
    expect(await two.places("plain")).toEqual([]);
  });

  test("runs a slot for one of many callers, in one process and in several", async () => {
    let runs = 0;
    const callers = Array.from({ length: 40 }, (_, n) =>
      once(n % 2 ? two.holder : two.session, "many", Math.floor(n / 8), () => ++runs, { rerun: "if_lost" }),
    );
    const results = await Promise.all(callers);

    expect(runs).toBe(5);
    expect(results.filter(({ ran }) => ran)).toHaveLength(5);
    expect(results.filter((result) => !result.ran && result.reason === "done")).toHaveLength(35);
  });

  test("says that a slot is running while its session has a delay key, however many wait in its queue", async () => {
    const delayed = await Session.open(two.cluster, { ttlSeconds: 60, releaseDelayMs: 500 });
    for (let round = 0; round < 12; round++) {
      const name = `delayed/${round}`;
      const { begun, end, work } = job();
      const running = once(delayed, name, 1, work);
      await begun;
      const waiting = Array.from({ length: 12 + round }, () => new Mutex(two.holder, name).lock());
      await queued(name, 14 + round);

      expect(await once(two.session, name, 1, never, { ifHeld: "skip" })).toMatchObject({
        reason: "running",
      });

      end("done");
      await running;
      for (const turn of waiting) await (await turn).release();
    }
    await delayed.close();
  });

  test("takes slots from 0 to the highest safe integer, in any order", async () => {
    for (const slot of [Number.MAX_SAFE_INTEGER, 0, 1_772_000_000_000, 10, 9])
      expect(await once(two.session, "slots", slot, () => slot)).toEqual({ ran: true, value: slot });
    expect(await once(two.session, "slots", 9, never)).toMatchObject({ reason: "done" });
  });

  test("gives the work the lock, with a fence, and excludes every other holder of the name", async () => {
    const { begun, end, work } = job();
    const running = once(two.holder, "excludes", 1, work);
    const lock = await begun;

    expect(lock.held).toBe(true);
    expect((await two.places("excludes"))[0]).toMatchObject({ key: lock.key, revision: lock.fence });
    expect(await new Mutex(two.session, "excludes").tryLock()).toBeUndefined();
    end("over");
    expect(await running).toEqual({ ran: true, value: "over" });
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
  });

  test("says at once that a slot is running, unless the caller stands by for a lost run", async () => {
    const { begun, end, work } = job();
    const running = once(two.holder, "running", 1, work);
    await begun;

    expect(await once(two.session, "running", 1, never)).toMatchObject({ ran: false, reason: "running" });
    const standby = once(two.session, "running", 1, never, { rerun: "if_lost" });
    await queued("running", 2);
    end("over");

    expect(await running).toMatchObject({ ran: true });
    expect(await standby).toMatchObject(DONE);
    // a call that is refused releases its place in the background
    await queued("running", 0);
  });

  test("waits in the queue while the slot before it runs, and while a Mutex of the name is held", async () => {
    const first = job();
    const running = once(two.holder, "overlap", 1, first.work);
    await first.begun;
    const order: string[] = [];
    const next = once(two.session, "overlap", 2, () => order.push("second slot"));
    await queued("overlap", 2);
    const mutex = new Mutex(two.holder, "overlap").withLock(() => order.push("mutex"));
    await queued("overlap", 3);
    const third = once(two.session, "overlap", 3, () => order.push("third slot"));
    await queued("overlap", 4);

    first.end("over");
    await Promise.all([running, next, mutex, third]);
    expect(order).toEqual(["second slot", "mutex", "third slot"]);
  });

  test("counts a slot whose work throws as run, and throws that very error", async () => {
    const error = new Error("work failed");

    expect(await reasonOf(once(two.holder, "throws", 1, () => Promise.reject(error)))).toBe(error);
    const again = await once(two.session, "throws", 1, never, { rerun: "if_lost" });
    expect(again).toMatchObject({ ran: false, reason: "done", run: { failed: true } });
  });

  test('runs a slot again whose work has thrown, and one that was lost, with rerun: "if_failed", until it succeeds', async () => {
    const options = { rerun: "if_failed" } as const;
    const error = new Error("work failed");
    const fails = () => reasonOf(once(two.holder, "retried", 1, () => Promise.reject(error), options));

    expect([await fails(), await fails()]).toEqual([error, error]);
    await reasonOf(once(two.holder, "retried", 1, (lock) => lock.release(), options));
    expect(await once(two.session, "retried", 1, never)).toMatchObject({ reason: "lost" });
    expect(await once(two.session, "retried", 1, () => "ran", options)).toEqual({ ran: true, value: "ran" });
    expect(await once(two.holder, "retried", 1, never, options)).toMatchObject({
      reason: "done",
      run: { failed: false },
    });
  });

  test('runs a slot again that failed while the call with rerun: "if_failed" waited behind it', async () => {
    const { begun, end, work } = job();
    const failing = once(two.holder, "takes-over", 1, (lock) =>
      work(lock).then(() => Promise.reject(new Error("failed"))),
    );
    const failed = reasonOf(failing);
    await begun;
    const standby = once(two.session, "takes-over", 1, () => "again", { rerun: "if_failed" });
    await queued("takes-over", 2);
    end("over");

    expect(await failed).toMatchObject({ message: "failed" });
    expect(await standby).toEqual({ ran: true, value: "again" });
  });
});

describe('once with ifHeld: "skip"', () => {
  const skip = { ifHeld: "skip" } as const;

  test("runs a slot whose lock is free, and never waits in the queue for one that is held", async () => {
    const { begun, end, work } = job();
    const running = once(two.holder, "skips", 1, work, skip);
    await begun;

    const ticks = Array.from({ length: 20 }, (_, n) =>
      once(n % 2 ? two.holder : two.session, "skips", 2 + n, never, skip),
    );
    const results = await Promise.all(ticks);
    expect(results).toEqual(results.map(() => ({ ran: false, reason: "held", run: undefined })));
    expect(await two.places("skips")).toHaveLength(1);
    end("over");
    expect(await running).toEqual({ ran: true, value: "over" });
    await queued("skips", 0);
    expect(await once(two.session, "skips", 2, () => 2, skip)).toEqual({ ran: true, value: 2 });
  });

  test("skips a slot while a Mutex of the name is held, and while its queue has entries of another kind", async () => {
    const lock = await new Mutex(two.holder, "skips-mutex").lock();
    expect(await once(two.session, "skips-mutex", 1, never, skip)).toMatchObject({ reason: "held" });
    await lock.release();
    const permit = await new Semaphore(two.holder, "skips-permit", 2).acquire();
    expect(await once(two.session, "skips-permit", 1, never, skip)).toMatchObject({ reason: "held" });
    await permit.release();
  });

  test("tells a slot that runs, was run, or was lost, as a call that waits does", async () => {
    const { begun, end, work } = job();
    const running = once(two.holder, "tells", 1, work);
    await begun;
    const told = (rerun: "never" | "if_lost") => once(two.session, "tells", 1, never, { ...skip, rerun });

    expect(await told("never")).toMatchObject({ reason: "running", run: { owner: "the holder" } });
    expect(await told("if_lost")).toMatchObject({ reason: "running", run: { owner: "the holder" } });
    end("over");
    await running;
    await queued("tells", 0);
    expect(await told("if_lost")).toMatchObject(DONE);
    await reasonOf(once(two.holder, "tells", 2, (lock) => lock.release()));
    expect(await once(two.session, "tells", 2, never, skip)).toMatchObject({ reason: "lost" });
  });

  test("runs a lost slot again if the lock is free, and skips it if not", async () => {
    await reasonOf(once(two.holder, "skips-lost", 1, (lock) => lock.release()));
    const lock = await new Mutex(two.holder, "skips-lost").lock();
    const again = () => once(two.session, "skips-lost", 1, () => "again", { ...skip, rerun: "if_lost" });

    expect(await again()).toEqual({ ran: false, reason: "held", run: undefined });
    await lock.release();
    expect(await again()).toEqual({ ran: true, value: "again" });
    expect(await again()).toMatchObject({ reason: "done" });
  });

  test("ends after timeoutMs with EtcdUnavailableError while etcd does not answer", async () => {
    two.etcd.member.pause();
    const called = reasonOf(once(two.session, "skips-frozen", 1, never, { ...skip, timeoutMs: 200 }));
    const error = await called;
    two.etcd.member.resume();

    expect(error).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    await queued("skips-frozen", 0);
    expect(await once(two.session, "skips-frozen", 1, () => 1)).toMatchObject({ ran: true });
  });
});

describe("a run that is lost in the middle", () => {
  /** Another client takes the lock of a run away. */
  async function lostRun(name: string) {
    const { begun, end, work } = job();
    const running = once(two.holder, name, 1, work);
    const lock = await begun;
    const { holders } = await inspect(two.cluster, name);
    await forceRelease(two.cluster, holders[0]!);
    await expect.poll(() => lock.signal.aborted).toBe(true);
    end("too late");
    return running;
  }

  test("rejects, and later callers that never rerun a slot learn of it", async () => {
    expect(await reasonOf(lostRun("lost"))).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });

    const told = await once(two.session, "lost", 1, never);
    expect(told).toMatchObject({ ran: false, reason: "lost", run: { owner: "the holder", failed: false } });
    expect(await two.places("lost")).toEqual([]);
  });

  test("is run again by one caller that asks for it, after which it is done for all", async () => {
    expect(await reasonOf(lostRun("rerun"))).toMatchObject({ code: "LOCK_LOST" });
    expect(await once(two.session, "rerun", 1, never)).toMatchObject({ reason: "lost" });

    let runs = 0;
    const again = await Promise.all(
      [1, 2, 3, 4].map(() => once(two.session, "rerun", 1, () => ++runs, { rerun: "if_lost" })),
    );

    expect(runs).toBe(1);
    expect(again.filter(({ ran }) => ran)).toHaveLength(1);
    expect(await once(two.holder, "rerun", 1, never)).toMatchObject({ reason: "done" });
  });

  test("is run again by the standby that has waited for it", async () => {
    const { begun, end, work } = job();
    const running = reasonOf(once(two.holder, "standby", 1, work));
    await begun;
    const standby = once(two.session, "standby", 1, () => "again", { rerun: "if_lost" });
    await queued("standby", 2);
    const { holders } = await inspect(two.cluster, "standby");
    await forceRelease(two.cluster, holders[0]!);

    expect(await standby).toEqual({ ran: true, value: "again" });
    end("too late");
    expect(await running).toMatchObject({ code: "LOCK_LOST" });
    expect(await once(two.holder, "standby", 1, never)).toMatchObject({ reason: "done" });
  });

  test("is what work makes of it that releases the lock itself", async () => {
    const released = once(two.holder, "released", 1, (lock) => lock.release());

    expect(await reasonOf(released)).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await once(two.session, "released", 1, never)).toMatchObject({ reason: "lost" });
  });

  test("is what a run of more than maxHoldMs is", async () => {
    const { begun, end, work } = job();
    const running = reasonOf(once(two.holder, "max-hold", 1, work, { maxHoldMs: 50, maxHoldGraceMs: 0 }));
    const lock = await begun;
    await expect.poll(() => lock.signal.aborted).toBe(true);
    end("too late");

    expect(await running).toMatchObject({ code: "LOCK_LOST", loss: "max_hold" });
    await queued("max-hold", 0);
    expect(await once(two.session, "max-hold", 1, never)).toMatchObject({ reason: "lost" });
  });
});

describe("a caller that gives up", () => {
  test("leaves the slot to others, after an abort and after a time limit", async () => {
    const held = await new Mutex(two.holder, "gives-up").lock();
    const stop = new AbortController();
    const aborted = reasonOf(once(two.session, "gives-up", 1, never, { signal: stop.signal }));
    await queued("gives-up", 2);
    stop.abort(new Error("enough"));
    expect(await aborted).toMatchObject({ message: "enough" });
    const late = await reasonOf(once(two.session, "gives-up", 1, never, { timeoutMs: 2000 }));
    expect(late).toMatchObject({ code: "LOCK_TIMEOUT", holder: { owner: "the holder" } });

    await held.release();
    expect(await once(two.session, "gives-up", 1, () => 1)).toMatchObject({ ran: true });
  });

  test("while etcd answers leaves neither a key nor a mark", async () => {
    for (let n = 0; n < 20; n++) {
      const stop = new AbortController();
      const call = once(two.session, "in-flight", n, never, { signal: stop.signal });
      stop.abort(new Error("enough"));
      expect(await reasonOf(call)).toMatchObject({ message: "enough" });
    }
    await queued("in-flight", 0);
    for (let n = 0; n < 20; n++)
      await expect.poll(async () => (await once(two.session, "in-flight", n, () => n)).ran).toBe(true);
  });
});

describe("old slots", () => {
  const ran = async (name: string, slot: number, keep: number) =>
    (await once(two.session, name, slot, () => slot, { keep })).ran;
  const whyNot = async (name: string, slot: number, keep = 1000) => {
    const result = await once(two.holder, name, slot, never, { keep });
    return result.ran ? "ran" : result.reason;
  };

  test("expire when more than `keep` higher ones are marked, and are never run again", async () => {
    for (const slot of [10, 20, 30, 40, 50]) expect(await ran("expire", slot, 3)).toBe(true);

    expect(await whyNot("expire", 50)).toBe("done");
    expect(await whyNot("expire", 30)).toBe("done");
    for (const slot of [20, 10, 15, 0]) expect(await whyNot("expire", slot)).toBe("expired");
    // It was never run, and its mark is among the highest.
    expect(await ran("expire", 25, 3)).toBe(true);
    expect(await whyNot("expire", 25)).toBe("expired");
  });

  test("expire by number and not by time: one far in the future stops no other", async () => {
    expect(await ran("future", Number.MAX_SAFE_INTEGER, 2)).toBe(true);
    for (const slot of [1, 2, 3, 4]) expect(await ran("future", slot, 2)).toBe(true);
    expect(await whyNot("future", 3)).toBe("expired");
    expect(await whyNot("future", 4)).toBe("done");
  });

  test("of a name that kept more are deleted by and by", async () => {
    for (let slot = 0; slot < 40; slot++) expect(await ran("fewer", slot, 1000)).toBe(true);
    for (let slot = 40; slot < 43; slot++) expect(await ran("fewer", slot, 1)).toBe(true);

    const { stdout } = await two.etcd.etcdctl(["get", "--prefix", "/leasehold/once/fewer//", "--keys-only"]);
    expect(stdout.split("\n").filter(Boolean)).toEqual([
      "/leasehold/once/fewer//-0000000000000041",
      "/leasehold/once/fewer//0000000000000042",
    ]);
  });
});

describe("marks", () => {
  test("are in no queue, in no list and on no lease, and outlive their session", async () => {
    expect(await once(two.session, "marks/a", 5, () => 5)).toMatchObject({ ran: true });

    for (const name of ["marks/a", "marks", "leasehold", "leasehold/once"]) {
      const lock = await new Mutex(two.holder, name).tryLock({ timeoutMs: 2000 });
      expect(lock, name).toBeDefined();
      await lock?.release();
    }
    const names = (await list(two.cluster, "", { limit: 1000 })).locks.map(({ name }) => name);
    expect(names.filter((name) => name.includes("once") || name.includes("marks"))).toEqual([]);
    for await (const { total } of watchQueue(two.cluster, "marks")) {
      expect(total).toEqual({ holders: 0, waiters: 0 });
      break;
    }
    // Longer than the session takes to list its keys.
    await delay(1000);
    expect(await once(two.holder, "marks/a", 5, never)).toMatchObject({ reason: "done" });
  });

  test("of a name and of one below it are different ones", async () => {
    expect(await once(two.session, "nested", 5, () => 5)).toMatchObject({ ran: true });
    expect(await once(two.session, "nested/a", 5, () => 5, { keep: 1 })).toMatchObject({ ran: true });
    expect(await once(two.session, "nested/a", 6, () => 5, { keep: 1 })).toMatchObject({ ran: true });
    expect(await once(two.session, "nested", 5, never)).toMatchObject({ reason: "done" });
    expect(await once(two.session, "nested", 4, () => 4)).toMatchObject({ ran: true });
  });

  test.each([
    ["by hand", { owner: undefined, since: undefined, failed: false }],
    ['{"since":{"toString":1},"owner":7}', { owner: undefined, since: undefined, failed: false }],
    ['{"state":"failed","since":[],"owner":"web-1"}', { owner: "web-1", since: undefined, failed: true }],
  ])("of an unknown form count as done: %s", async (value, run) => {
    await two.etcd.etcdctl(["put", "/leasehold/once/foreign//0000000000000001", value]);

    expect(await once(two.session, "foreign", 1, never)).toEqual({ ran: false, reason: "done", run });
  });
});

test("once rejects in an async context that holds the name", async () => {
  const inner = new Mutex(two.session, "inside").withLock(() => once(two.session, "inside", 1, never));

  expect(await reasonOf(inner)).toMatchObject({ code: "DEADLOCK" });
});

test("work may throw what can't be asked for anything: the slot has failed", async () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  let isSame = false;
  try {
    await once(two.session, "revoked", 1, () => {
      throw proxy;
    });
  } catch (error) {
    isSame = error === proxy;
  }

  expect(isSame).toBe(true);
  expect(await once(two.session, "revoked", 1, never)).toMatchObject({
    reason: "done",
    run: { failed: true },
  });
});
