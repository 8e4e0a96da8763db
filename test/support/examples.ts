// Runs the programs in examples/ as a user does, against an etcd of the test, and ends them by their ids.
import { execFileSync, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { fileURLToPath } from "node:url";
import { freePorts } from "./ports.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Long enough to be overtaken in, short enough to wait for. */
const TTL_SECONDS = 2;
const SAYS_MS = 40_000;

/** Examples import the package by its name, which is what was built. */
export function buildPackage(): void {
  execFileSync(process.execPath, [`${ROOT}test/support/build.js`], { timeout: 120_000 });
}

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** One running example. */
export class Program {
  readonly ended: Promise<Ended>;
  readonly #child;
  readonly #news = new EventEmitter();
  #stdout = "";
  #stderr = "";

  constructor(file: string, args: readonly string[], env: NodeJS.ProcessEnv) {
    const child = spawn(process.execPath, [`${ROOT}examples/${file}`, ...args], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    child.stdout.on("data", (text: Buffer) => this.#news.emit("said", (this.#stdout += text.toString())));
    child.stderr.on("data", (text: Buffer) => (this.#stderr += text.toString()));
    this.ended = once(child, "close").then(([code]) => {
      this.#news.emit("said");
      return { code: code as number | null, stdout: this.#stdout, stderr: this.#stderr };
    });
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Resolves when it has printed `text`. */
  async says(text: string): Promise<void> {
    const signal = AbortSignal.timeout(SAYS_MS);
    while (!this.#stdout.includes(text)) {
      if (!this.running) throw new Error(`It ended without saying "${text}": ${this.#stdout}${this.#stderr}`);
      await once(this.#news, "said", { signal });
    }
  }

  /** By its id; `SIGSTOP` and `SIGCONT` make it stand still and go on. */
  signal(name: "SIGSTOP" | "SIGCONT" | "SIGTERM" | "SIGKILL"): void {
    this.#child.kill(name);
  }
}

/** The programs of one test. */
export class Examples {
  readonly #programs: Program[] = [];
  readonly #env: NodeJS.ProcessEnv;

  constructor(endpoints: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.#env = { ETCD_HOSTS: endpoints.join(), TTL_SECONDS: String(TTL_SECONDS), ...env };
  }

  start(file: string, { args = [], env = {} }: { args?: string[]; env?: NodeJS.ProcessEnv } = {}): Program {
    const program = new Program(file, args, { ...this.#env, ...env });
    this.#programs.push(program);
    return program;
  }

  /** One that serves HTTP on a free port; resolves with its address once it listens. */
  async serve(file: string, env: NodeJS.ProcessEnv = {}): Promise<{ url: string; program: Program }> {
    const [port] = await freePorts(1);
    const program = this.start(file, { env: { ...env, PORT: String(port) } });
    await program.says("listening");
    return { url: `http://127.0.0.1:${port}`, program };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.#programs) if (program.running) program.signal("SIGKILL");
    await Promise.all(this.#programs.map(({ ended }) => ended));
  }
}
