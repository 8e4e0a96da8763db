// Many processes with many waiters each on one name, all behind a holder that the test keeps until it says so.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Guardian } from "../guarded.js";
import { readJournal } from "./journal.js";
/** @import { ChildProcess } from "node:child_process" */
/** @import { Step } from "./history.js" */
/** @import { CrowdTask } from "./crowd-worker.js" */

const PROGRAM = fileURLToPath(new URL("./crowd-worker.js", import.meta.url));

export class Crowd {
  /** @type {Map<string, ChildProcess>} */ #children = new Map();
  /** @type {Map<string, Promise<void>>} */ #exits = new Map();
  #folder;
  #guardian;

  /** @param {Omit<CrowdTask, "p" | "journal"> & { processes: number }} task */
  static async start({ processes, ...task }) {
    const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-crowd-"));
    const crowd = new Crowd(folder);
    for (let n = 0; n < processes; n++)
      crowd.#add({ ...task, p: `p${n}`, journal: path.join(folder, `p${n}`) });
    return crowd;
  }

  /** @param {string} folder */
  constructor(folder) {
    this.#folder = folder;
    this.#guardian = new Guardian(folder);
  }

  /** @param {CrowdTask} task */
  #add(task) {
    const child = fork(PROGRAM, [JSON.stringify(task)], { stdio: ["ignore", 2, 2, "ipc"] });
    child.setMaxListeners(0);
    this.#guardian.tell(`+${child.pid}`);
    this.#children.set(task.p, child);
    this.#exits.set(
      task.p,
      once(child, "exit").then(() => this.#guardian.tell(`-${child.pid}`)),
    );
  }

  get names() {
    return [...this.#children.keys()];
  }

  /** Resolves when every process that lives has sent `message`; rejects when one ends before. @param {string} message */
  async all(message) {
    await Promise.all(
      [...this.#children].map(async ([p, child]) => {
        const told = new Promise((resolve) =>
          child.on("message", (said) => said === message && resolve(true)),
        );
        const ended = this.#exits.get(p)?.then(() => child.signalCode === "SIGKILL");
        if (!(await Promise.race([told, ended]))) throw new Error(`${p} ended before it was ${message}`);
      }),
    );
  }

  /** @param {string} message */
  tell(message) {
    for (const child of this.#children.values()) if (child.connected) child.send(message, () => {});
  }

  /** kill -9 @param {string} p */
  async kill(p) {
    this.#children.get(p)?.kill("SIGKILL");
    await this.#exits.get(p);
  }

  /** Resolves when every process has ended by itself. */
  async ended() {
    await Promise.all(this.#exits.values());
  }

  /** @returns {Step[]} by time */
  get history() {
    const steps = /** @type {Step[]} */ (this.names.flatMap((p) => readJournal(path.join(this.#folder, p))));
    return steps.sort((a, b) => Number(a.t - b.t));
  }

  async [Symbol.asyncDispose]() {
    for (const child of this.#children.values()) child.kill("SIGKILL");
    await this.ended();
    await this.#guardian.dismiss();
  }
}
