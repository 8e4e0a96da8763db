// A process with many waiters: `node --expose-gc waiters-program.js HOSTS KIND COUNT NAME`. It sends what each of them costs
// of the heap when all have come to rest. KIND: "one name" and "semaphore" wait for NAME, "names" for NAME/0, NAME/1, ...
import { connect, Mutex, Semaphore, Session } from "leasehold";

const [hosts = "", kind = "", count = "0", name = ""] = process.argv.slice(2);
const size = Number(count);

const cluster = connect({ hosts: hosts.split(",") });
const session = await Session.open(cluster, { ttlSeconds: 60 });

function heap() {
  // The second one frees what the first one has finalized.
  for (let n = 0; n < 2; n++) globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

/** @type {Record<string, (n: number) => Promise<unknown>>} */
const wait = {
  "one name": () => new Mutex(session, name).lock(),
  names: (n) => new Mutex(session, `${name}/${n}`).lock(),
  semaphore: () => new Semaphore(session, name, 1).acquire(),
};

/** Until the event loop has had next to nothing to do for a while: on a busy machine it takes longer to come to that. */
async function rest() {
  for (let quiet = 0; quiet < 4;) {
    const start = performance.eventLoopUtilization();
    await new Promise((resolve) => setTimeout(resolve, 500));
    quiet = performance.eventLoopUtilization(start).utilization < 0.1 ? quiet + 1 : 0;
  }
}

// What is made once is there before.
const warm = new Mutex(session, "warm");
await (await warm.lock()).release();
await rest();
const before = heap();
const waiting = Array.from({ length: size }, (_, n) => wait[kind]?.(n));
await rest();
const bytesEach = Math.round((heap() - before) / size);
process.send?.({ bytesEach });
// Until it is killed.
await Promise.all(waiting);
