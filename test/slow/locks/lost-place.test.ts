// Somebody deletes the key of a waiter that is far from its turn, so that no watch of the waiter reports it. The session's list of its
// keys, every 4 s, finds that out; the slow read of the wait itself comes after 22 s at the earliest.
import { describe, expect, test } from "vitest";
import { lockAll, Mutex, Session } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(60);
const { places, queued } = two;
const WITHIN = { timeout: 15_000 };
/** A waiter watches its own key if at most so many are before it. */
const AHEAD = 6;

/** A queue with a holder and waiters, all of other sessions than the one of the test. */
async function crowd(name: string) {
  const sessions = await Promise.all(
    Array.from({ length: AHEAD }, () => Session.open(two.cluster, { ttlSeconds: 60 })),
  );
  for (const [n, session] of sessions.entries()) {
    void reasonOf(new Mutex(session, name).lock());
    await queued(name, n + 1);
  }
  return async () => void (await Promise.all(sessions.map((session) => session.close({ drainMs: 0 }))));
}

/** Deletes the last key under the name, and waits until the queue has another one in its place. */
async function replaced(name: string, count: number) {
  const last = (await places(name)).at(-1)!;
  await two.etcd.etcdctl(["del", last.key]);
  await expect.poll(async () => (await places(name)).length, WITHIN).toBe(count);
  expect((await places(name)).at(-1)!.revision).toBeGreaterThan(last.revision);
}

describe("a place far from its turn whose key is deleted is taken anew within seconds", () => {
  test("by a waiter", async () => {
    const leave = await crowd("far/one");
    const waiting = new Mutex(two.session, "far/one").lock();
    await queued("far/one", AHEAD + 1);

    await replaced("far/one", AHEAD + 1);

    await leave();
    await (await waiting).release();
  });

  test("by a waiter behind another one of its session", async () => {
    const leave = await crowd("far/local");
    const mutex = new Mutex(two.session, "far/local");
    const waiting = [mutex.lock(), mutex.lock()];
    await queued("far/local", AHEAD + 2);

    await replaced("far/local", AHEAD + 2);

    await leave();
    for (const turn of waiting) await (await turn).release();
  });

  test("by a lockAll, with all of its names", async () => {
    const leave = await crowd("far/all");
    const waiting = lockAll(two.session, ["far/all", "far/free"]);
    await queued("far/all", AHEAD + 1);
    const [free] = await places("far/free");

    await replaced("far/all", AHEAD + 1);

    await expect.poll(async () => (await places("far/free"))[0]?.revision).toBeGreaterThan(free!.revision);
    await leave();
    await (await waiting).release();
  });
});
