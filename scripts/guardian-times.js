// `node scripts/guardian-times.js [ROUNDS]`: how long the next holder waits after the end of a process that `guardian: true` guards,
// with a TTL of 15 s, for each way to end; and what the guardian costs.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect, Mutex } from "leasehold";
import { startEtcd } from "../test/support/etcd/etcd.js";

const ROUNDS = Number(process.argv[2] ?? 50);
const PROGRAM = fileURLToPath(new URL("../test/support/programs/guarded-program.js", import.meta.url));
const TTL = 15;
const etcd = await startEtcd();
const options = { hosts: etcd.endpoints, session: { ttlSeconds: TTL } };
const cluster = connect(options);

/** @param {string} how @param {number} round @returns {Promise<number>} milliseconds from the end to the next grant */
async function round(how, round) {
  const name = `guardian/${how}-${round}`;
  const program = spawn(process.execPath, [PROGRAM, JSON.stringify(options), name, how], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const lines = createInterface({ input: program.stdout });
  await once(lines, "line");
  const next = new Mutex(cluster, name).lock().then((lock) => ({ lock, at: performance.now() }));
  await delay(600);
  const ended = once(program, "exit").then(() => performance.now());
  if (how === "kill") program.kill("SIGKILL");
  else program.stdin.write("go\n");
  const at = await ended;
  const granted = await next;
  await granted.lock.release();
  return granted.at - at;
}

const at = (/** @type {number[]} */ sorted, /** @type {number} */ part) =>
  (sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? NaN).toFixed(1);

console.log(`etcd ${etcd.version}, Node.js ${process.version}, TTL ${TTL} s, ${ROUNDS} rounds each`);
for (const how of ["kill", "exit", "throw"]) {
  const times = [];
  for (let n = 0; n < ROUNDS; n++) times.push(await round(how, n));
  times.sort((a, b) => a - b);
  console.log(`${how}: next holder after ${at(times, 0.5)} ms (p50), ${at(times, 0.99)} ms (p99)`);
}
await cluster.close();
await etcd.stop();
