// The first line that runs after the process stood still, before any timer has fired.
import { expect, test } from "vitest";
import {
  Election,
  type Hold,
  lockAll,
  LockLostError,
  type MultiLock,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  SessionLostError,
} from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 2;
const MAX_HOLD_MS = 1000;
const LONG_TTL_SECONDS = 600;
const two = twoSessions(LONG_TTL_SECONDS);

type Take = (session: Session, options: { maxHoldMs?: number }) => Promise<Hold | MultiLock>;
const LOCKS: Readonly<Record<string, Take>> = {
  mutex: (session, options) => new Mutex(session, "mutex", options).lock(),
  reader: (session, options) => new RwLock(session, "readers", options).readLock(),
  writer: (session, options) => new RwLock(session, "writers", options).writeLock(),
  permit: (session, options) => new Semaphore(session, "permits", 2, options).acquire(),
  lockAll: (session, options) => lockAll(session, ["all/a", "all/b"], options),
};
/** A leadership has no `maxHoldMs`. */
const ALL = { ...LOCKS, leadership: (session: Session) => new Election(session, "election").campaign("me") };

/** As SIGSTOP does: nothing of this process runs meanwhile. */
const standStill = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** Each with a session of its own: reading one signal says nothing about the others. */
async function takeAll(kinds: Readonly<Record<string, Take>>, ttlSeconds: number, maxHoldMs?: number) {
  const options = maxHoldMs === undefined ? {} : { maxHoldMs };
  return Promise.all(
    Object.entries(kinds).map(async ([kind, take]) => {
      const session = await Session.open(two.cluster, { ttlSeconds });
      return { kind, hold: await take(session, options), session };
    }),
  );
}

test("has the signal of every hold aborted where the pause outlasted the TTL, and of every session", async () => {
  const taken = await takeAll(ALL, TTL_SECONDS);
  const bare = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });

  standStill(TTL_SECONDS * 1000);
  const aborted = taken.map(({ kind, hold }) => [kind, hold.signal.aborted]);
  const sessionAborted = bare.signal.aborted;

  expect(aborted).toEqual(Object.keys(ALL).map((kind) => [kind, true]));
  expect(sessionAborted).toBe(true);
  for (const { hold } of taken) expect(hold.signal.reason).toBeInstanceOf(LockLostError);
  expect(bare.signal.reason).toBeInstanceOf(SessionLostError);
});

test("has the signal of every hold aborted where the pause outlasted its maxHoldMs", async () => {
  const taken = await takeAll(LOCKS, LONG_TTL_SECONDS, MAX_HOLD_MS);

  standStill(MAX_HOLD_MS);
  const aborted = taken.map(({ kind, hold }) => [kind, hold.signal.aborted]);

  expect(aborted).toEqual(Object.keys(LOCKS).map((kind) => [kind, true]));
  for (const { hold } of taken) expect(hold.signal.reason).toMatchObject({ loss: "max_hold" });
  await Promise.allSettled(taken.map(({ hold }) => hold.release()));
  await Promise.all(taken.map(({ session }) => session.close()));
});
