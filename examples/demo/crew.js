// @ts-check
// The processes of the demo: started, frozen, killed and ended here, each by its pid.
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** @typedef {import("node:child_process").ChildProcess} ChildProcess */
/** @typedef {import("./stage.js").Stage} Stage */

const PATIENCE_MS = 10_000;

/**
 * Freezes a process and thaws it when this shell's standard input closes, even if the demo was killed in the meantime,
 * which would otherwise leave a stopped process behind forever.
 */
const FREEZER = `trap '' INT TERM HUP; kill -s STOP "$0" && echo frozen; read -r _; kill -s CONT "$0"`;

export class Crew {
  #stage;
  /** @type {Map<string, ChildProcess>} */
  #running = new Map();

  /** @param {Stage} stage receives every message of every process */
  constructor(stage) {
    this.#stage = stage;
  }

  /**
   * @param {string} name
   * @param {string} file next to this one
   * @param {object} job
   */
  start(name, file, job) {
    const path = fileURLToPath(new URL(file, import.meta.url));
    const child = fork(path, [JSON.stringify(job)], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    this.#running.set(name, child);
    child.on("message", (message) => this.#stage.emit(/** @type {any} */ (message)));
    child.on("error", (error) => this.#stage.emit({ k: "crashed", p: name, why: error.message }));
    child.on("exit", (code, signal) => {
      this.#running.delete(name);
      this.#stage.emit({ k: "exit", p: name, code, signal });
    });
  }

  /** @param {string} name */
  kill(name) {
    this.#running.get(name)?.kill("SIGKILL");
  }

  /**
   * Resolves when the process is frozen, with a function that thaws it.
   * @param {string} name
   * @returns {Promise<() => Promise<void>>}
   */
  async freeze(name) {
    const pid = String(this.#running.get(name)?.pid);
    const freezer = spawn("/bin/sh", ["-c", FREEZER, pid], { stdio: ["pipe", "pipe", "ignore"] });
    const ended = once(freezer, "exit");
    await Promise.race([once(freezer.stdout, "data"), ended]);
    return async () => {
      freezer.stdin.end();
      await ended;
    };
  }

  /**
   * Asks processes to end, and kills those that do not.
   * @param {string[]} names
   */
  async end(names) {
    await Promise.all(names.map((name) => this.#endOne(this.#running.get(name))));
  }

  /** @param {ChildProcess | undefined} child */
  async #endOne(child) {
    if (!child) return;
    const ended = once(child, "exit");
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
    if (child.connected) child.send("end", () => {});
    await ended;
    clearTimeout(timer);
  }

  async killAll() {
    const ended = [...this.#running.values()].map((child) => {
      const exit = once(child, "exit");
      child.kill("SIGKILL");
      return exit;
    });
    await Promise.all(ended);
  }
}
