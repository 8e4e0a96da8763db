// Briefly outlives the process that started an etcd cluster: when the pipe on standard input closes, however that
// process ended, it kills the members that still run and removes their data folder. Lines on standard input: "+PID" (a
// member was started), "-PID" (it has exited), in that order per member; a negative PID is a process group. The only argument is the data
// folder.
import { rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

const folder = /** @type {string} */ (process.argv[2]);
/** @type {Set<number>} */
const running = new Set();

for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(name, () => {});

for await (const line of createInterface({ input: process.stdin })) {
  const pid = Number(line.slice(1));
  if (line.startsWith("+")) running.add(pid);
  else running.delete(pid);
}

for (const pid of running) kill(pid);
for (const pid of running) await gone(pid);
rmSync(folder, { recursive: true, force: true, maxRetries: 5 });

/** @param {number} pid */
function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // it has already exited
  }
}

// A dying etcd may still write: removing its folder before it has exited would leave files behind.
/** @param {number} pid */
async function gone(pid) {
  for (let tries = 0; tries < 100; tries++) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    await delay(20);
  }
}
