// @ts-check
// One contender: acquires the lock, reads the counter, works for a while, writes the counter plus one, and repeats.
import { setTimeout as delay } from "node:timers/promises";
import { connect, Mutex } from "leasehold";
import { Counter } from "./counter.js";
import { now, openHistory } from "./history.js";
import { obey, tell } from "./parent.js";
import { seeded } from "./random.js";

/**
 * @typedef {object} WorkerJob
 * @property {string} name
 * @property {string[]} endpoints
 * @property {string} lock
 * @property {string} counter
 * @property {string} folder
 * @property {number} seed
 * @property {number} ttlSeconds
 * @property {boolean} sabotage
 */
/** @typedef {import("leasehold").Lock} Lock */

const job = /** @type {WorkerJob} */ (JSON.parse(process.argv[2] ?? ""));
const write = openHistory(job.folder, job.name);
const random = seeded(job.seed);
const counter = new Counter(job.endpoints, job.counter);
const stop = new AbortController();

/** To the history first, then to the screen: what is shown is always recorded. */
function record(/** @type {Record<string, unknown>} */ entry) {
  const written = write(entry);
  tell(written);
  return written;
}

async function contend() {
  const session = { ttlSeconds: job.ttlSeconds, owner: job.name };
  const cluster = connect({ hosts: job.endpoints, session });
  const mutex = new Mutex(cluster, job.lock);
  while (!stop.signal.aborted) {
    try {
      await mutex.withLock(useLock, { signal: stop.signal });
    } catch (error) {
      if (!stop.signal.aborted) await endured(error);
    }
  }
  await cluster.close();
}

/** @param {Lock} lock */
async function useLock(lock) {
  const fence = Number(lock.fence);
  record({ k: "held", fence, key: lock.key, held: lock.held });
  lock.signal.addEventListener("abort", () => {
    const { code, loss } = lock.signal.reason;
    if (code === "LOCK_LOST") record({ k: "lost", fence, loss });
  });
  const before = await counter.read();
  record({ k: "working", fence, before, held: lock.held });
  await work(lock);
  await writeBack(lock, before + 1);
  claim(lock, "done");
}

/**
 * Pretends to be busy, and records whether the lock is held: these are the claims that must never overlap.
 * @param {Lock} lock
 */
async function work(lock) {
  const steps = random.between(4, 9);
  for (let step = 0; step < steps; step++) {
    await delay(50);
    claim(lock, "claim");
  }
}

/**
 * The fence decides, not `lock.held`: the process could be frozen right after reading it.
 * @param {Lock} lock
 * @param {number} n
 */
async function writeBack(lock, n) {
  const fence = Number(lock.fence);
  const op = `${job.name}-${fence}`;
  const { t: invoked } = record({ k: "write", fence, n, op });
  const count = { n, fence, by: job.name, op };
  const outcome = job.sabotage ? await counter.writeUnfenced(count) : await counter.writeFenced(lock, count);
  record({ k: "wrote", fence, n, op, invoked, outcome });
}

/**
 * @param {Lock} lock
 * @param {string} k
 */
function claim(lock, k) {
  // The time is read first: otherwise, a process that is frozen between the two would claim at a time at which it did
  // not look.
  const t = now();
  record({ t, k, fence: Number(lock.fence), held: lock.held });
}

/** @param {unknown} error */
async function endured(error) {
  const { name, code, message } = /** @type {Error & { code?: string }} */ (error);
  record({ k: "failed", name, code, message });
  // A lost lock is an ordinary event here: lock again. Any other error must not cause a busy loop.
  if (code !== "LOCK_LOST") await delay(200);
}

obey(() => stop.abort(new Error("the demo ends")));

await contend();
record({ k: "closed" });
counter.close();
process.disconnect();
