// `node --expose-gc signals-program.js HOSTS CALLS`: takes locks with a signal that lives as long as the process, for the waits and
// for the work, and opens sessions with it. Prints what a call leaves in the heap, and the listeners at the signal, in JSON.
import { getEventListeners } from "node:events";
import { setImmediate } from "node:timers/promises";
import { connect, Mutex } from "leasehold";

const LANES = 100;
const WARM_UP = 5000;

const [hosts = "", calls = "0"] = process.argv.slice(2);
const cluster = connect({ hosts: hosts.split(",") });
const stop = new AbortController();
const { signal } = stop;

/** @param {number} count */
async function take(count) {
  const lane = async (/** @type {number} */ n) => {
    const mutex = new Mutex(cluster, `signals/${n}`);
    // Like most code, it does not stop listening when it is done.
    const work = (/** @type {AbortSignal} */ both) => both.addEventListener("abort", () => {});
    for (let call = 0; call < count / LANES; call++)
      await mutex.withLock((lock) => work(lock.signalWith(signal)), { signal });
  };
  await Promise.all(Array.from({ length: LANES }, (_, n) => lane(n)));
}

async function heap() {
  // What was finalized is freed by a later collection.
  for (let n = 0; n < 4; n++) {
    await setImmediate();
    globalThis.gc?.();
  }
  return process.memoryUsage().heapUsed;
}

await take(WARM_UP);
const before = await heap();
await take(Number(calls));
const after = await heap();
const listeners = getEventListeners(signal, "abort").length;
console.log(JSON.stringify({ bytesEach: (after - before) / Number(calls), listeners }));
await cluster.close();
