import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import type { Socket } from "node:net";

/**
 * Briefly outlives the process that has started servers: when the pipe on standard input closes, however that process ended, it
 * kills the servers that still run and removes their folder. Lines on standard input: "+PID" (a server was started), "-PID" (it
 * has exited); a negative PID is a process group. It is passed as text because a bundler would not find a file.
 */
const PROGRAM = `
const { rmSync } = require("node:fs");
const { createInterface } = require("node:readline");
const folder = process.argv[1];
const running = new Set();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, () => {});
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const pid = Number(line.slice(1));
  if (line.startsWith("+")) running.add(pid);
  else running.delete(pid);
});
lines.on("close", async () => {
  for (const pid of running) try { process.kill(pid, "SIGKILL"); } catch {}
  for (const pid of running) await gone(pid);
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});
// A dying server may still write: removing its folder before it has exited would leave files behind.
async function gone(pid) {
  for (let tries = 0; tries < 100; tries++) {
    try { process.kill(pid, 0); } catch { return; }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
`;

/** The starter's end of the pipe to the process that cleans up after a starter that has died. */
export class Guardian {
  readonly #child: ChildProcess;
  readonly #folder: string;

  /** `folder` is removed when the starter ends, or by `dismiss()`. */
  constructor(folder: string) {
    this.#folder = folder;
    // Options of the starter, such as a loader or coverage, would slow it down.
    const env = { ...process.env, NODE_OPTIONS: "", NODE_V8_COVERAGE: "" };
    this.#child = spawn(process.execPath, ["--input-type=commonjs", "-e", PROGRAM, "--", folder], {
      ...{ stdio: ["pipe", "ignore", "ignore"], detached: true, env },
    });
    this.#child.unref();
    this.#child.on("error", () => {});
    (this.#child.stdin as Socket | null)?.unref();
    this.#child.stdin?.on("error", () => {});
  }

  tell(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  /** Resolves when the guardian has exited and the folder is removed. */
  async dismiss(): Promise<void> {
    const { pid, exitCode, signalCode } = this.#child;
    this.#child.ref();
    const gone = pid !== undefined && exitCode === null && signalCode === null && once(this.#child, "exit");
    this.#child.stdin?.end();
    await gone;
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
