// `node scripts/busy-times.js [ROUNDS]`: what becomes of the lock of a process whose main thread stands still, with a TTL of 5 s and
// the renewal in a worker thread: for less than `maxStallMs`, and for longer; and what the thread costs.
// The figures of docs/leases.md.
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect, Mutex } from "leasehold";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { costOf } from "../test/support/programs/process-cost.js";
import { Said } from "../test/support/programs/said.js";

const ROUNDS = Number(process.argv[2] ?? 50);
const PROGRAM = fileURLToPath(new URL("../test/support/programs/busy-program.js", import.meta.url));
const TTL = 5;
const TTL_MS = TTL * 1000;
/** The part of the TTL after which a holder counts as lost. */
const USED_PART = 0.9;
const BLOCK_MS = 60_000;
const AT_ONCE = 25;
const IDLE_MS = 20_000;
const CALLS = 1500;

const etcd = await startEtcd();
const options = { hosts: etcd.endpoints, session: { ttlSeconds: TTL } };
const cluster = connect({ hosts: etcd.endpoints });

/** As the programs read it. */
function hrtimeMs() {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

/**
 * @typedef {{ held: boolean, at: number, sinceLastRenewalMs?: number, error?: string }} Report
 * @param {string} name
 * @param {object} more options of `connect`
 */
async function start(name, more) {
  const words = [PROGRAM, JSON.stringify({ ...options, ...more }), name];
  const program = spawn(process.execPath, words, { stdio: ["pipe", "pipe", "pipe"] });
  const said = new Said(program);
  const line = async () => /** @type {Report} */ (JSON.parse(await said.next()));
  await line();
  return { program, line };
}

/** @param {string} name @param {object} more @param {number} ms */
async function round(name, more, ms) {
  const { program, line } = await start(name, more);
  const next = new Mutex(cluster, name).withLock(() => hrtimeMs());
  const told = line();
  program.stdin.write(`block ${ms}\n`);
  const report = await told;
  program.kill("SIGKILL");
  return { report, grantedAt: await next };
}

/** @param {string} kind @param {object} more @param {number} ms */
async function rounds(kind, more, ms) {
  const all = [];
  for (let n = 0; n < ROUNDS; n += AT_ONCE)
    all.push(
      ...(await Promise.all(
        Array.from({ length: Math.min(AT_ONCE, ROUNDS - n) }, (_, k) => round(`${kind}/${n + k}`, more, ms)),
      )),
    );
  return all;
}

/** @param {number[]} values @param {number} part */
const at = (values, part) => {
  const sorted = values.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? NaN);
};

/** @param {"main" | "worker"} renewal */
async function idle(renewal) {
  const { program } = await start(`idle/${renewal}`, { renewal });
  await delay(3 * TTL_MS);
  const before = costOf(program.pid ?? 0);
  await delay(IDLE_MS);
  const after = costOf(program.pid ?? 0);
  program.stdin.write("close\n");
  await once(program, "exit");
  return { megabytes: after.resident * 1.048576, percent: ((after.cpu - before.cpu) * 100_000) / IDLE_MS };
}

/** Microseconds for a lock and its release, and for a hand-over between two clusters. @param {"main" | "worker"} renewal */
async function calls(renewal) {
  const one = connect({ ...options, renewal });
  const other = connect({ ...options, renewal });
  const alone = new Mutex(one, `calls/${renewal}`);
  const both = [one, other].map((each) => new Mutex(each, `both/${renewal}`));
  for (let n = 0; n < CALLS; n++) await alone.withLock(() => n);
  let from = performance.now();
  for (let n = 0; n < CALLS; n++) await alone.withLock(() => n);
  const lock = ((performance.now() - from) * 1000) / CALLS;
  from = performance.now();
  await Promise.all(
    both.map(async (mutex) => {
      for (let n = 0; n < CALLS / 2; n++) await mutex.withLock(() => n);
    }),
  );
  const handOver = ((performance.now() - from) * 1000) / CALLS;
  await Promise.all([one.close(), other.close()]);
  return { lock, handOver };
}

console.log(`etcd ${etcd.version}, Node.js ${process.version}, ${os.cpus().length} cores, TTL ${TTL} s`);

const short = await rounds("short", { renewal: "worker", maxStallMs: 2 * BLOCK_MS }, BLOCK_MS);
const lost = short.filter(({ report }) => !report.held).length;
const early = short.filter(({ report, grantedAt }) => report.held && grantedAt < report.at).length;
console.log(`blocked for ${BLOCK_MS / 1000} s: ${lost} of ${ROUNDS} lost, ${early} next holders early`);
for (const { report } of short) if (report.error !== undefined) console.log(`  ${report.error}`);

const long = await rounds("long", { renewal: "worker" }, 4 * TTL_MS);
const told = long.filter(({ report }) => !report.held).length;
const waits = long.map(
  ({ report, grantedAt }) => grantedAt - (report.at - (report.sinceLastRenewalMs ?? NaN)),
);
const soonest = at(waits, 0);
console.log(
  `blocked beyond maxStallMs (${TTL_MS}): ${told} of ${ROUNDS} told by the first line; next holder ` +
    `${at(waits, 0.5)} ms (p50), ${at(waits, 0.99)} ms (p99) after the last renewal, ${soonest} ms at the soonest: ` +
    `${soonest >= USED_PART * TTL_MS ? "never" : "EVEN"} before the deadline`,
);

const [main, worker] = [await idle("main"), await idle("worker")];
console.log(
  `the thread: ${(worker.megabytes - main.megabytes).toFixed(1)} MB, ` +
    `${(worker.percent - main.percent).toFixed(2)} % of a core when idle (${main.percent.toFixed(2)} % without it)`,
);

/** @type {Record<"lock" | "handOver", number[]>} */
const ratios = { lock: [], handOver: [] };
for (let n = 0; n < 5; n++) {
  const [here, there] = n % 2 === 0 ? ["main", "worker"] : ["worker", "main"];
  const first = await calls(/** @type {"main"} */ (here));
  const second = await calls(/** @type {"main"} */ (there));
  const [without, with_] = n % 2 === 0 ? [first, second] : [second, first];
  for (const what of /** @type {const} */ (["lock", "handOver"]))
    ratios[what].push(with_[what] / without[what]);
}
const middle = (/** @type {number[]} */ values) => (values.toSorted((a, b) => a - b)[2] ?? NaN).toFixed(2);
console.log(
  `with the thread, of without it: lock and release ${middle(ratios.lock)}, hand-over ${middle(ratios.handOver)}`,
);

await cluster.close();
await etcd.stop();
