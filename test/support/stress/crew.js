// The worker processes of a run: started, stopped, killed, started again, always by pid.
import { fork } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
/** @import { ChildProcess } from "node:child_process" */
/** @import { Guardian } from "../guarded.js" */
/** @import { Task } from "./worker.js" */

const PROGRAM = fileURLToPath(new URL("./worker.js", import.meta.url));

export class Worker {
  #guardian;
  #task;
  #n;
  #life = 0;
  /** @type {ChildProcess} */ #child;
  /** Resolves with true when it has ended all it was doing. */
  #idle;

  /** @param {number} n @param {Omit<Task, "p" | "journal">} task @param {{ folder: string, guardian: Guardian }} home */
  constructor(n, task, { folder, guardian }) {
    this.#n = n;
    this.#task = { ...task, journal: path.join(folder, `w${n}.jsonl`) };
    this.#guardian = guardian;
    [this.#child, this.#idle] = this.#start();
  }

  /** The present incarnation. */
  get p() {
    return `w${this.#n}.${this.#life}`;
  }

  get journal() {
    return this.#task.journal;
  }

  pause() {
    this.#child.kill("SIGSTOP");
  }

  resume() {
    this.#child.kill("SIGCONT");
  }

  /** kill -9; resolves when the process has exited. */
  async kill() {
    if (this.ended) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  restart() {
    this.#life++;
    [this.#child, this.#idle] = this.#start();
  }

  get ended() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Ends what runs and starts nothing new. @param {number} timeoutMs @returns {Promise<boolean>} false = not in time */
  async finish(timeoutMs) {
    this.#tell("finish");
    return within(timeoutMs, this.#idle);
  }

  /** Closes sessions and cluster, then ends by itself. @param {number} timeoutMs @returns {Promise<boolean>} */
  async close(timeoutMs) {
    if (this.ended) return this.#child.exitCode === 0;
    const exited = once(this.#child, "exit");
    this.#tell("close");
    return within(
      timeoutMs,
      exited.then(() => this.#child.exitCode === 0),
    );
  }

  /** @param {string} message */
  #tell(message) {
    // A worker that crashed has said so in its journal.
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  /** @returns {[ChildProcess, Promise<boolean>]} */
  #start() {
    const child = fork(PROGRAM, [JSON.stringify({ ...this.#task, p: this.p })], {
      stdio: ["ignore", 2, 2, "ipc"],
    });
    this.#guardian.tell(`+${child.pid}`);
    child.once("exit", () => this.#guardian.tell(`-${child.pid}`));
    const idle = new Promise((resolve) => {
      child.once("message", () => resolve(true));
      child.once("exit", () => resolve(false));
    });
    return [child, idle];
  }
}

/** @param {number} timeoutMs @param {Promise<boolean>} promise @returns {Promise<boolean>} */
async function within(timeoutMs, promise) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(() => resolve(false), timeoutMs)));
  const first = await Promise.race([promise, late]);
  clearTimeout(timer);
  return first;
}
