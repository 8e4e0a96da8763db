// How long a killed holder keeps a lock.
import { setTimeout as delay } from "node:timers/promises";
import type { ContenderProcess } from "../frame/contender-process.js";
import { cyclesOf } from "../frame/cycles.js";
import type { Field } from "../frame/field.js";
import { open, startAll, untilGranted } from "../frame/measure.js";
import { median } from "../report/statistics.js";
import { now } from "../worker/clock.js";
import type { Question } from "./question.js";

/** This many locks of one process, each with a separate session if the client has sessions. */
const LOCKS = 5;
/** By then, the others are certainly waiting, and renewals are at arbitrary points of their cycle. */
const SETTLE_MS = 1500;
/** etcd checks for expired leases twice a second; a leader change would restart them. */
const PATIENCE_MS = 15_000;
const TTLS = [2, 5];
const QUICK_TTLS = [2];

async function afterKill(field: Field, ttlSeconds: number) {
  const both = await field.crew.processes(2);
  const [holder, waiter] = both as readonly [ContenderProcess, ContenderProcess];
  await open(field, both, [LOCKS, LOCKS], ttlSeconds);
  const forMs = SETTLE_MS + ttlSeconds * 1000 + PATIENCE_MS;
  const task = { kind: "cycle", name: field.name, names: "each", contenders: LOCKS, forMs } as const;
  await startAll([holder], [task]);
  await untilGranted(holder, LOCKS);
  await startAll([waiter], [{ ...task, cycles: 1, holdMs: 0 }]);
  await delay(SETTLE_MS);
  const killed = now();
  await holder.kill();
  await untilGranted(waiter, LOCKS);
  const seconds = cyclesOf([await waiter.stop()]).map(({ granted }) => (granted - killed) / 1e9);
  return { p50: median(seconds), longest: Math.max(...seconds) };
}

export const takeOver: Question = {
  name: "take-over",
  title: `Taking over after kill -9 of the holder, ${LOCKS} locks at once`,
  members: 1,
  columns: [
    { figure: "p50", title: "median s" },
    { figure: "longest", title: "longest s" },
  ],
  cases: ({ quick }) =>
    (quick ? QUICK_TTLS : TTLS).map((ttl) => ({
      ...{ name: `TTL ${ttl} s`, rounds: 1, peers: ["leasehold", "go"] as const },
      others: ["etcd3", "redlock", "redis-semaphore"] as const,
      run: (field) => afterKill(field, ttl),
    })),
  targets: [],
};
