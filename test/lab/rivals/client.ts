import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import type { Guardian } from "../../support/servers/guarded.js";
import { now } from "../runner/journal.js";
import { Hold } from "./hold.js";
import type { Links } from "./links.js";
import { Deferred } from "./patience.js";
import type { Store } from "./store.js";
import type { Command } from "./worker.js";

export interface ClientOptions {
  readonly p: string;
  readonly links: Links;
  readonly command: readonly [string, ...string[]];
  readonly store: Store;
  readonly guardian: Guardian;
  note(line: object): void;
}

/** An acquire that may still be pending. */
export interface Wait {
  readonly id: number;
  /** undefined: it was refused, or the process has ended. */
  readonly hold: Promise<Hold | undefined>;
}

interface Told {
  readonly t: string;
  readonly k: string;
  readonly id?: number;
  readonly token?: string;
  readonly held?: boolean;
}

let ids = 0;
const COMPLAINT = 2000;

/** One process that uses the subject. */
export class Client {
  readonly p: string;
  readonly links: Links;
  readonly #options: ClientOptions;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #ready = new Deferred<void>();
  readonly #closed = new Deferred<void>();
  readonly #gone = new Deferred<undefined>();
  readonly #names = new Map<number, string>();
  readonly #waits = new Map<number, Deferred<Hold | undefined>>();
  readonly #holds = new Map<number, Hold>();
  readonly #claims: Deferred<boolean>[] = [];
  readonly #releases = new Map<number, Deferred<void>>();
  #expectedToEnd = false;
  /** The end of what it has said on standard error. */
  #complaint = "";

  constructor(options: ClientOptions) {
    this.#options = options;
    this.p = options.p;
    this.links = options.links;
    const [program, ...args] = options.command;
    this.#child = spawn(program, args, { stdio: "pipe" });
    options.guardian.tell(`+${this.#child.pid}`);
    this.#child.once("exit", (code, signal) => this.#exited(signal ?? code));
    this.#child.stdin.on("error", () => {});
    this.#child.stderr.on("data", (chunk: Buffer) => {
      this.#complaint = `${this.#complaint}${chunk.toString()}`.slice(-COMPLAINT);
    });
    createInterface({ input: this.#child.stdout }).on("line", (line) => this.#heard(line));
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  note(line: object): void {
    this.#options.note({ t: now(), p: this.p, ...line });
  }

  async ready(): Promise<void> {
    await Promise.race([this.#ready.promise, this.#gone.promise]);
    if (this.ended) throw new Error(`${this.p} ended before it was ready: ${this.#complaint}`);
  }

  /** Requests the lock. */
  ask(name: string, timeoutMs: number): Wait {
    const id = ++ids;
    const wait = new Deferred<Hold | undefined>();
    this.#names.set(id, name);
    this.#waits.set(id, wait);
    this.note({ k: "ask", id, name, timeoutMs });
    this.#tell({ do: "acquire", id, name, timeoutMs });
    return { id, hold: Promise.race([wait.promise, this.#gone.promise]) };
  }

  async claim(id: number): Promise<boolean> {
    const claim = new Deferred<boolean>();
    this.#claims.push(claim);
    this.#tell({ do: "claim", id });
    return (await Promise.race([claim.promise, this.#gone.promise])) ?? false;
  }

  async release(id: number): Promise<void> {
    const released = new Deferred<void>();
    this.#releases.set(id, released);
    this.#tell({ do: "release", id });
    await Promise.race([released.promise, this.#gone.promise]);
  }

  /** Resolves when the subject's own `close` has ended; its process continues until it is killed. */
  async close(): Promise<void> {
    this.#tell({ do: "close" });
    await Promise.race([this.#closed.promise, this.#gone.promise]);
  }

  shiftClock(ms: number): void {
    this.#tell({ do: "shift", ms });
  }
  /** For so long it answers nothing. */
  block(ms: number): void {
    this.#tell({ do: "block", ms });
  }
  pause(): void {
    this.#child.kill("SIGSTOP");
  }
  resume(): void {
    this.#child.kill("SIGCONT");
  }

  /** kill -9; resolves when the process has exited. */
  async kill(): Promise<void> {
    if (this.ended) return;
    this.#expectedToEnd = true;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  #tell(command: Command): void {
    this.#child.stdin.write(`${JSON.stringify(command)}\n`);
  }

  #exited(how: string | number | null): void {
    this.#options.guardian.tell(`-${this.#child.pid}`);
    if (!this.#expectedToEnd) this.note({ k: "crash", err: `ended by itself (${how})` });
    this.#gone.resolve(undefined);
  }

  #heard(line: string): void {
    const told = parse(line);
    if (told === undefined) return;
    const { k, id } = told;
    if (k === "ready") return this.#ready.resolve();
    if (k === "closed") return this.#closed.resolve();
    const of = id !== undefined && { name: this.#names.get(id) };
    const token = told.token !== undefined && { token: BigInt(told.token) };
    this.note({ ...told, t: BigInt(told.t), ...of, ...token });
    if (id !== undefined) this.#act(told, id);
  }

  #act({ k, token, held }: Told, id: number): void {
    if (k === "granted") {
      const name = this.#names.get(id) ?? "";
      const hold = new Hold(this, this.#options.store, id, name, token === undefined ? token : BigInt(token));
      this.#holds.set(id, hold);
      this.#waits.get(id)?.resolve(hold);
    }
    if (k === "refused") this.#waits.get(id)?.resolve(undefined);
    if (k === "claim") this.#claims.shift()?.resolve(held === true);
    if (k === "lost") this.#holds.get(id)?.told();
    if (k === "released" || k === "unreleased") this.#releases.get(id)?.resolve();
  }
}

/** undefined: the line is the subject's own output. */
function parse(line: string): Told | undefined {
  try {
    return JSON.parse(line) as Told;
  } catch {
    return undefined;
  }
}
