// `node scripts/ready.js scripts/ts.js SCRIPT [ARGS]`: runs a program in TypeScript, whose exit code and end by
// a signal become this process's own. A process of its own, as tsx is installed only once `ready.js` has done its work.
import { spawn } from "node:child_process";
import { once } from "node:events";

const program = ["--import", import.meta.resolve("tsx"), ...process.argv.slice(2)];
const child = spawn(process.execPath, program, { stdio: "inherit" });

/** @type {NodeJS.Signals[]} */
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of SIGNALS)
  process.on(signal, () => {
    // A terminal tells both of us.
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });

const [code, signal] = /** @type {[number | null, NodeJS.Signals | null]} */ (await once(child, "exit"));
for (const name of SIGNALS) process.removeAllListeners(name);
if (signal !== null) process.kill(process.pid, signal);
process.exitCode = code ?? 1;
