// Many processes with many waiters each on one name, all behind a holder that the test controls.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { Step } from "../../lab/runner/history.js";
import { readJournal } from "../../lab/runner/journal.js";
import type { CrowdTask } from "./crowd-worker.js";
import { owned } from "./owned.js";
import { Said } from "./said.js";
import { Guardian } from "../servers/guarded.js";

const PROGRAM = fileURLToPath(new URL("./crowd-worker.ts", import.meta.url));

export class Crowd {
  readonly #children = new Map<string, ChildProcess>();
  readonly #said = new Map<string, Said>();
  readonly #exits = new Map<string, Promise<void>>();
  readonly #folder: string;
  readonly #guardian: Guardian;

  static async start({
    processes,
    ...task
  }: Omit<CrowdTask, "p" | "journal"> & { processes: number }): Promise<Crowd> {
    const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-crowd-"));
    const crowd = new Crowd(folder);
    for (let n = 0; n < processes; n++)
      crowd.#add({ ...task, p: `p${n}`, journal: path.join(folder, `p${n}`) });
    return crowd;
  }

  constructor(folder: string) {
    this.#folder = folder;
    this.#guardian = new Guardian(folder);
  }

  #add(task: CrowdTask): void {
    const child = owned(
      fork(PROGRAM, [JSON.stringify(task)], {
        stdio: ["ignore", 2, 2, "ipc"],
        execArgv: ["--import", "tsx"],
      }),
    );
    this.#guardian.tell(`+${child.pid}`);
    this.#children.set(task.p, child);
    this.#said.set(task.p, new Said(child));
    const exit = once(child, "exit").then(() => this.#guardian.tell(`-${child.pid}`));
    this.#exits.set(task.p, exit);
  }

  get names(): string[] {
    return [...this.#children.keys()];
  }

  /** Resolves when every living process has sent `message`; rejects when one ends before. */
  async all(message: string): Promise<void> {
    await Promise.all(
      [...this.#said].map(([p, said]) =>
        said
          .first((word) => word === message)
          .catch((error: Error) => {
            if (this.#children.get(p)?.signalCode !== "SIGKILL") throw error;
          }),
      ),
    );
  }

  tell(message: string): void {
    for (const child of this.#children.values()) if (child.connected) child.send(message, () => {});
  }

  /** kill -9 */
  async kill(p: string): Promise<void> {
    this.#children.get(p)?.kill("SIGKILL");
    await this.#exits.get(p);
  }

  /** Resolves when every process has ended by itself. */
  async ended(): Promise<void> {
    await Promise.all(this.#exits.values());
  }

  /** By time. */
  get history(): Step[] {
    const steps = this.names.flatMap((p) => readJournal(path.join(this.#folder, p)));
    return steps.sort((a, b) => Number(a.t - b.t));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children.values()) child.kill("SIGKILL");
    await this.ended();
    await this.#guardian.dismiss();
  }
}
