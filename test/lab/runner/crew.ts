// The worker processes of a run: started, stopped, killed and restarted, always by pid.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Guardian } from "../../support/servers/guarded.js";
import type { Observer } from "./observer.js";

const WORKER = fileURLToPath(new URL("./worker.ts", import.meta.url));

/** The first argument, as JSON, of every program that a `Worker` runs. */
export interface BaseTask {
  /** This incarnation, such as "w2.1". */
  readonly p: string;
  /** The file to which its steps are appended. */
  readonly journal: string;
}

export interface CrewOptions {
  readonly count: number;
  /** The folder of the journals. */
  readonly folder: string;
  /** What each worker gets besides its `BaseTask`. */
  readonly task: object;
  /** A program in TypeScript; default: the worker that runs leasehold. */
  readonly program?: string;
}

/** All workers of a run. */
export class Crew {
  readonly workers: readonly Worker[];
  readonly #guardian: Guardian;

  constructor({ count, folder, task, program = WORKER }: CrewOptions) {
    this.#guardian = new Guardian(folder);
    const start = { folder, task, program, guardian: this.#guardian };
    this.workers = Array.from({ length: count }, (_, n) => new Worker(n, start));
  }

  get journals(): string[] {
    return this.workers.map(({ journal }) => journal);
  }

  /** The living worker that has the place, by the `owner` in its value. */
  ownerOf(value: string): Worker | undefined {
    return this.workers.find(({ p, ended }) => !ended && value.includes(`"${p}/`));
  }

  /** The holders and the waiters, as far as the observer has seen. */
  seenBy(observer: Observer, places: string): { holders: Worker[]; waiters: Worker[] } {
    const heads = new Set<string>();
    const found = { holders: [] as Worker[], waiters: [] as Worker[] };
    for (const { key, value } of observer.puts(places)) {
      const lock = key.slice(0, key.lastIndexOf("/"));
      const worker = this.ownerOf(value);
      if (worker !== undefined) found[heads.has(lock) ? "waiters" : "holders"].push(worker);
      heads.add(lock);
    }
    return found;
  }

  async stop(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.kill()));
    await this.#guardian.dismiss();
  }
}

interface Start {
  readonly folder: string;
  readonly task: object;
  readonly program: string;
  readonly guardian: Guardian;
}

export class Worker {
  readonly journal: string;
  readonly #n: number;
  readonly #start: Start;
  #life = 0;
  #child: ChildProcess;
  /** Resolves with true when it has finished everything that it was doing. */
  #idle: Promise<boolean>;

  constructor(n: number, start: Start) {
    this.#n = n;
    this.#start = start;
    this.journal = path.join(start.folder, `w${n}.jsonl`);
    [this.#child, this.#idle] = this.#launch();
  }

  /** The current incarnation. */
  get p(): string {
    return `w${this.#n}.${this.#life}`;
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  pause(): void {
    this.#child.kill("SIGSTOP");
  }

  resume(): void {
    this.#child.kill("SIGCONT");
  }

  /** Its main thread runs one loop until `unblock()`. */
  block(): void {
    const blockedBy = `${this.journal}.blocked`;
    writeFileSync(blockedBy, "");
    this.#tell({ blockedBy });
  }

  unblock(): void {
    rmSync(`${this.journal}.blocked`, { force: true });
  }

  /** kill -9; resolves when the process has exited. */
  async kill(): Promise<void> {
    if (this.ended) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  restart(): void {
    this.#life++;
    [this.#child, this.#idle] = this.#launch();
  }

  /** Moves its wall clock. */
  shiftClock(ms: number): void {
    this.#tell({ shiftMs: ms });
  }

  /** Finishes what is running and starts nothing new; false = not in time. */
  async finish(timeoutMs: number): Promise<boolean> {
    this.#tell("finish");
    return within(timeoutMs, this.#idle);
  }

  /**
   * Closes sessions and cluster, after which the process ends by itself; false = not in time, or not with exit code 0.
   */
  async close(timeoutMs: number): Promise<boolean> {
    if (this.ended) return this.#child.exitCode === 0;
    const exited = once(this.#child, "exit");
    this.#tell("close");
    return within(
      timeoutMs,
      exited.then(() => this.#child.exitCode === 0),
    );
  }

  #tell(message: string | object): void {
    // A worker that crashed has recorded that in its journal.
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  #launch(): [ChildProcess, Promise<boolean>] {
    const { guardian, program, task } = this.#start;
    const base: BaseTask = { p: this.p, journal: this.journal };
    const child = fork(program, [JSON.stringify({ ...task, ...base })], {
      stdio: ["ignore", 2, 2, "ipc"],
      execArgv: ["--import", "tsx"],
    });
    guardian.tell(`+${child.pid}`);
    child.once("exit", () => guardian.tell(`-${child.pid}`));
    const idle = new Promise<boolean>((resolve) => {
      child.once("message", () => resolve(true));
      child.once("exit", () => resolve(false));
    });
    return [child, idle];
  }
}

async function within(timeoutMs: number, promise: Promise<boolean>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => (timer = setTimeout(() => resolve(false), timeoutMs)));
  const first = await Promise.race([promise, late]);
  clearTimeout(timer);
  return first;
}
