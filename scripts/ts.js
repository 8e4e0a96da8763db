// `node scripts/ready.js scripts/ts.js SCRIPT [ARGS]`: runs a program in TypeScript, whose exit code or signal becomes
// this process's own. It runs in a child process, because tsx is installed only after `ready.js` has finished.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { transportEnv } from "../test/support/transport.js";

const program = ["--import", import.meta.resolve("tsx"), ...process.argv.slice(2)];
const env = { ...process.env, ...transportEnv() };
const child = spawn(process.execPath, program, { stdio: "inherit", env });

/** @type {NodeJS.Signals[]} */
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of SIGNALS)
  process.on(signal, () => {
    // A terminal sends SIGINT to both processes.
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });

const [code, signal] = /** @type {[number | null, NodeJS.Signals | null]} */ (await once(child, "exit"));
for (const name of SIGNALS) process.removeAllListeners(name);
if (signal !== null) process.kill(process.pid, signal);
process.exitCode = code ?? 1;
