// A process with many waiters: `node --expose-gc waiters-program.js HOSTS KIND COUNT NAME`. It sends the heap size per
// waiter when all of them are idle. KIND: "one name" and "semaphore" wait for NAME, "names" for NAME/0, NAME/1, ...
import { connect, Mutex, Semaphore, Session } from "leasehold";

const [hosts = "", kind = "", count = "0", name = ""] = process.argv.slice(2);
const size = Number(count);

const cluster = connect({ hosts: hosts.split(",") });
const session = await Session.open(cluster, { ttlSeconds: 60 });

function heap() {
  // The second call frees what the first one has finalized.
  for (let n = 0; n < 2; n++) globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

/** @type {Record<string, (n: number) => Promise<unknown>>} */
const wait = {
  "one name": () => new Mutex(session, name).lock(),
  names: (n) => new Mutex(session, `${name}/${n}`).lock(),
  semaphore: () => new Semaphore(session, name, 1).acquire(),
};

/**
 * Waits until the heap size has been stable for a while. The event loop is not a measure: 20,000 watches alone keep it
 * busy.
 */
async function rest() {
  for (let quiet = 0, last = heap(); quiet < 6;) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    const now = heap();
    quiet = Math.abs(now - last) < last / 200 ? quiet + 1 : 0;
    last = now;
  }
}

// Creates in advance what exists only once.
const warm = new Mutex(session, "warm");
await (await warm.lock()).release();
await rest();
const before = heap();
const waiting = Array.from({ length: size }, (_, n) => wait[kind]?.(n));
await rest();
const bytesEach = Math.round((heap() - before) / size);
process.send?.({ bytesEach });
// Runs until it is killed.
await Promise.all(waiting);
