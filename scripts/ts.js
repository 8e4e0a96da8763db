// `node scripts/ready.js scripts/ts.js SCRIPT [ARGS]`: runs a program in TypeScript, whose exit code or signal becomes
// this process's own. It runs in a child process, because tsx is installed only after `ready.js` has finished.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { transportEnv } from "../test/support/transport.js";

const program = ["--import", import.meta.resolve("tsx"), ...process.argv.slice(2)];
const env = { ...process.env, ...transportEnv() };
const child = spawn(process.execPath, program, { stdio: ["inherit", "inherit", "inherit", "ipc"], env });

/** A program may send its exit code when its work is done. */
const EXIT_MS = 15_000;
/** @type {number | undefined} */
let announced;
child.on("message", (exitCode) => {
  announced = Number(exitCode);
  // Seen twice in long runs of the lab on Node.js 20: the process was done, and did not end within minutes.
  setTimeout(() => {
    console.error("The program was done, but its process did not end: killed.");
    child.kill("SIGKILL");
  }, EXIT_MS).unref();
});

/** @type {NodeJS.Signals[]} */
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of SIGNALS)
  process.on(signal, () => {
    // A terminal sends SIGINT to both processes.
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });

const [code, signal] = /** @type {[number | null, NodeJS.Signals | null]} */ (await once(child, "exit"));
for (const name of SIGNALS) process.removeAllListeners(name);
if (signal !== null && announced === undefined) process.kill(process.pid, signal);
process.exitCode = code ?? announced ?? 1;
