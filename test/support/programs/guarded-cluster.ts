import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { GuardedEnd } from "./guarded.js";
import { guardiansOf } from "./guardians.js";
import { owned } from "./owned.js";
import { Said } from "./said.js";

const PROGRAM = fileURLToPath(new URL("guarded-cluster-program.js", import.meta.url));

/** One process of a GuardedCluster that has its lock. */
export interface Member {
  readonly pid: number;
  readonly lease: bigint;
  readonly fence: bigint;
  readonly guardians: readonly number[];
}

interface Taken {
  readonly pid: number;
  readonly leases: readonly string[];
  readonly fences: readonly string[];
  readonly exited?: undefined;
}
type Line = Taken | { readonly exited: number };

/** A primary of node:cluster with its workers: see guarded-cluster-program.js. */
export class GuardedCluster implements AsyncDisposable {
  readonly #said: Said;
  #primary: Member | undefined;
  readonly #known = new Set<number>();

  private constructor(private readonly child: ChildProcess) {
    this.#said = new Said(child);
  }

  /** @param name the lock of the primary itself */
  static async start(options: object, name: string): Promise<GuardedCluster> {
    const args = [PROGRAM, JSON.stringify(options), name];
    const crew = new GuardedCluster(owned(spawn(process.execPath, args, { stdio: "pipe" })));
    crew.#primary = await crew.#taken();
    return crew;
  }

  get primary(): Member {
    if (this.#primary === undefined) throw new Error("it has its lock when start() has resolved");
    return this.#primary;
  }

  /** Resolves when the worker has its lock. One at a time. */
  async worker(options: object, name: string, how: GuardedEnd = "wait"): Promise<Member> {
    this.#order({ start: [JSON.stringify(options), name, how] });
    return this.#taken();
  }

  /** As its `how` said. Resolves when it has ended. */
  async end({ pid }: Member): Promise<void> {
    this.#order({ end: pid });
    await this.exited(pid);
  }

  /** `kill -9`. Resolves when the primary has noticed the end of its worker, or has ended itself. */
  async kill({ pid }: Member): Promise<void> {
    process.kill(pid, "SIGKILL");
    if (pid !== this.child.pid) await this.exited(pid);
    else if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, "exit");
  }

  async exited(pid: number): Promise<void> {
    await this.#said.first((line) => (JSON.parse(line) as Line).exited === pid);
  }

  async #taken(): Promise<Member> {
    let line: Line;
    do {
      line = JSON.parse(await this.#said.next()) as Line;
      if (line.exited !== undefined && !this.#known.has(line.exited))
        throw new Error(`${line.exited} ended without its lock: ${this.#said.stderr}`);
    } while (line.exited !== undefined);
    const { pid, leases, fences } = line;
    this.#known.add(pid);
    const [lease = ""] = leases;
    return { pid, lease: BigInt(`0x${lease}`), fence: BigInt(fences[0] ?? 0), guardians: guardiansOf(pid) };
  }

  #order(order: object): void {
    this.child.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  /** Its workers end with the primary. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill("SIGKILL");
    await once(this.child, "exit");
  }
}
