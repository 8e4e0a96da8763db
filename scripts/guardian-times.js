// `node scripts/guardian-times.js [ROUNDS]`: how long the next holder waits after the end of a process that `guardian: true` guards,
// with a TTL of 15 s, for each way to end; how long the next leader waits for one whose work hangs; and what a guardian costs.
// The figures of docs/leases.md.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect, lead, Mutex } from "leasehold";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { guardiansOf } from "../test/support/programs/guardians.js";
import { costOf } from "../test/support/programs/process-cost.js";
import { Said } from "../test/support/programs/said.js";

const ROUNDS = Number(process.argv[2] ?? 50);
const PROGRAM = fileURLToPath(new URL("../test/support/programs/guarded-program.js", import.meta.url));
const TTL = 15;
const WITHIN_MS = 2000;
/** Until the guardian has started, as in a process that lives longer. */
const STARTED_MS = 600;
const IDLE_MS = 20_000;

const etcd = await startEtcd();
const options = { hosts: etcd.endpoints, session: { ttlSeconds: TTL } };
const cluster = connect(options);

/** @typedef {import("node:child_process").ChildProcess & { readonly pid: number }} Program */

/** @param {string} name @param {string} how */
async function start(name, how) {
  const args = how === "heap" ? ["--max-old-space-size=64"] : [];
  const words = [...args, PROGRAM, JSON.stringify(options), name, how === "heap" ? "memory" : how];
  const program = spawn(process.execPath, words, { stdio: ["pipe", "pipe", "pipe"] });
  await new Said(program).next();
  return program;
}

/** A group of processes with little memory: what goes beyond it is killed. @param {number} pid */
function confine(pid) {
  const folder = `/sys/fs/cgroup/memory/leasehold-${pid}`;
  mkdirSync(folder);
  writeFileSync(`${folder}/memory.limit_in_bytes`, String(300 * 1024 * 1024));
  for (const each of [pid, ...guardiansOf(pid)]) writeFileSync(`${folder}/cgroup.procs`, String(each));
  return folder;
}

/** @param {string} how @param {number} n @returns {Promise<number>} milliseconds from the end to the next grant */
async function round(how, n) {
  const name = `guardian/${how}-${n}`;
  const program = await start(name, how);
  const next = new Mutex(cluster, name).lock().then((lock) => ({ lock, at: performance.now() }));
  await delay(STARTED_MS);
  const group = how === "memory" ? confine(program.pid ?? 0) : undefined;
  const ended = once(program, "exit").then(() => performance.now());
  if (how === "kill") program.kill("SIGKILL");
  else program.stdin.write("go\n");
  const at = await ended;
  const granted = await next;
  await granted.lock.release();
  if (group !== undefined) await removed(group);
  return granted.at - at;
}

/** @param {string} group */
async function removed(group) {
  for (let n = 0; n < 100; n++) {
    try {
      return rmdirSync(group);
    } catch {
      await delay(20);
    }
  }
}

/** @param {number} n @returns {Promise<number>} milliseconds from when the work hangs to the next leader */
async function hang(n) {
  const name = `hang/${n}`;
  const stop = new AbortController();
  /** @type {() => void} */
  let end = () => {};
  let hungAt = 0;
  let isWell = true;
  /** @type {(leads: unknown) => void} */
  let began = () => {};
  const leads = new Promise((resolve) => (began = resolve));
  const healthy = () => (isWell ? true : new Promise(() => {}));
  const work = () => (began(0), new Promise((resolve) => (end = () => resolve(undefined))));
  const first = lead(cluster, name, work, { signal: stop.signal, healthy, withinMs: WITHIN_MS });
  await leads;
  const next = lead(cluster, name, () => void stop.abort(), { signal: stop.signal });
  // At any moment between two checks.
  await delay(300 + (n % 10) * 50);
  isWell = false;
  hungAt = performance.now();
  await new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
  const took = performance.now() - hungAt;
  end();
  await Promise.all([first, next]);
  return took;
}

const at = (/** @type {number[]} */ sorted, /** @type {number} */ part) =>
  (sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? NaN).toFixed(1);

/** @param {string} title @param {number[]} times */
function print(title, times) {
  times.sort((a, b) => a - b);
  console.log(`${title}: ${at(times, 0.5)} ms (p50), ${at(times, 0.99)} ms (p99), ${times.length} rounds`);
}

console.log(`etcd ${etcd.version}, Node.js ${process.version}, ${os.cpus().length} cores, TTL ${TTL} s`);
for (const how of ["kill", "exit", "throw", "heap", "memory"]) {
  const times = [];
  try {
    for (let n = 0; n < ROUNDS; n++) times.push(await round(how, n));
  } catch (error) {
    console.log(`not run: ${how}: ${/** @type {Error} */ (error).message}`);
    continue;
  }
  print(`next holder after ${how}`, times);
}
const hangs = [];
for (let n = 0; n < ROUNDS; n += 10)
  hangs.push(...(await Promise.all(Array.from({ length: Math.min(10, ROUNDS - n) }, (_, k) => hang(n + k)))));
print(`next leader after a hang, withinMs ${WITHIN_MS}`, hangs);

const idle = await start("guardian/idle", "close");
await delay(3000);
const [guardian = 0] = guardiansOf(idle.pid ?? 0);
const before = costOf(guardian);
await delay(IDLE_MS);
const after = costOf(guardian);
console.log(
  `guardian: ${after.resident.toFixed(1)} MiB resident, ${after.own.toFixed(1)} MiB of its own, ` +
    `${(((after.cpu - before.cpu) * 100_000) / IDLE_MS).toFixed(2)} % of a core when idle`,
);
idle.stdin.write("go\n");
await once(idle, "exit");
await cluster.close();
await etcd.stop();
