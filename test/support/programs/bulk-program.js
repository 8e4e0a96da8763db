// A process with thousands of waiters or holds: `node --expose-gc bulk-program.js HOSTS COUNT`, controlled by messages.
// The answer to each message contains the result and the CPU time of the longest turn of the event loop: on a busy
// machine, a turn may take any time, but no more CPU time.
import { connect, Mutex, Session } from "leasehold";

const [hosts = "", count = "0"] = process.argv.slice(2);
const size = Number(count);
// The previous process may have been killed: its lease lasts for a while.
const name = `bulk/${process.pid}`;

const cluster = connect({ hosts: hosts.split(",") });
const session = await Session.open(cluster, { ttlSeconds: 30 });
const crowded = new Mutex(session, name);
const giveUp = new AbortController();
/** @type {import("leasehold").Lock[]} */
let held = [];
/** @type {Promise<string>[]} */
let waiting = [];
let rested = { at: 0, cpu: process.cpuUsage() };

function heap() {
  // The second call frees what the first one has finalized.
  for (let n = 0; n < 2; n++) globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

const all = () => Array.from({ length: size }, (_, n) => n);

/** How many calls ended in which way. */
async function outcome() {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const end of await Promise.all(waiting)) counts[end] = (counts[end] ?? 0) + 1;
  return counts;
}

/** One caller of `lock()` from its call to its end. @param {AbortSignal} signal */
async function call(signal) {
  try {
    const lock = await crowded.lock({ signal });
    await lock.release();
    return "served";
  } catch (error) {
    return /** @type {Error} */ (error).name;
  }
}

/** @type {Record<string, () => Promise<object>>} */
const steps = {
  /** Each call waits with one shared signal, as calls of one request handler do. */
  async wait() {
    held = [await crowded.lock()];
    const before = heap();
    const { signal } = giveUp;
    waiting = all().map(() => call(signal));
    await new Promise(setImmediate);
    return { heapEach: (heap() - before) / size };
  },
  async drain() {
    await held[0]?.release();
    return { outcome: await outcome() };
  },
  async abort() {
    giveUp.abort();
    return { outcome: await outcome() };
  },
  async hold() {
    held = await Promise.all(all().map((n) => new Mutex(session, `${name}/${n}`).lock()));
    return { held: held.filter((lock) => lock.held).length };
  },
  /** From here on, CPU time is counted. */
  async rest() {
    heap();
    rested = { at: performance.now(), cpu: process.cpuUsage() };
    return {};
  },
  async rested() {
    const { user, system } = process.cpuUsage(rested.cpu);
    return { core: (user + system) / 1000 / (performance.now() - rested.at) };
  },
  async close() {
    await session.close({ drainMs: 0 });
    return { held: held.filter((lock) => lock.held).length, outcome: await outcome() };
  },
};

let longestTurnMs = 0;
/** @type {NodeJS.Timeout | undefined} */
let turns;

function watchTurns() {
  longestTurnMs = 0;
  let before = process.cpuUsage();
  turns = setInterval(() => {
    const { user, system } = process.cpuUsage(before);
    longestTurnMs = Math.max(longestTurnMs, (user + system) / 1000);
    before = process.cpuUsage();
  }, 10);
}

process.on("message", async (/** @type {string} */ step) => {
  watchTurns();
  const came = await steps[step]?.();
  // The turn that ended it counts, too.
  await new Promise((resolve) => setTimeout(resolve, 20));
  clearInterval(turns);
  process.send?.({ ...came, longestTurnMs });
});
process.once("disconnect", () => process.exit());
process.send?.("ready");
