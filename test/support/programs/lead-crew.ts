// Processes of `lead-program.js`, and the events that their work reports.
import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { owned } from "./owned.js";

const PROGRAM = fileURLToPath(new URL("./lead-program.js", import.meta.url));

export interface Moment {
  readonly what: "begin" | "end";
  readonly pid: number;
  readonly fence: bigint;
  readonly at: bigint;
}

const isRunning = (child: ChildProcess): boolean => child.exitCode === null && child.signalCode === null;

/** All processes of one test; those that still run at its end are killed. */
export class LeadCrew {
  readonly moments: Moment[] = [];
  readonly #children = new Map<number, ChildProcess>();
  readonly #news = new EventEmitter();

  constructor(private readonly args: readonly string[]) {}

  start(): number {
    const child = owned(
      spawn(process.execPath, [PROGRAM, ...this.args], { stdio: ["ignore", "pipe", "inherit"] }),
    );
    const pid = child.pid!;
    this.#children.set(pid, child);
    child.once("exit", () => this.#news.emit("news"));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const { what, fence, at } = JSON.parse(line) as Record<"what" | "fence" | "at", string>;
      this.moments.push({ what: what as Moment["what"], pid, fence: BigInt(fence), at: BigInt(at) });
      this.#news.emit("news");
    });
    return pid;
  }

  /** The first matching moment, past or future. */
  async moment(fits: (moment: Moment) => boolean): Promise<Moment> {
    for (;;) {
      const found = this.moments.find(fits);
      if (found) return found;
      if (![...this.#children.values()].some(isRunning))
        throw new Error("All of them have ended before that moment");
      await once(this.#news, "news");
    }
  }

  /** Resolves with the exit code when the process has ended. */
  async end(pid: number, signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#children.get(pid)!;
    this.#children.delete(pid);
    const closed = once(child, "close");
    child.kill(signal);
    const [code] = (await closed) as [number | null];
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#children.keys()].map((pid) => this.end(pid, "SIGKILL")));
  }
}
