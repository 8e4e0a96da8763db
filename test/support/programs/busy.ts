import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Said } from "./said.js";

const PROGRAM = fileURLToPath(new URL("busy-program.js", import.meta.url));

/** What a process of busy-program.js says of its lock. Bigints are text. */
export interface BusyReport {
  readonly held: boolean;
  readonly remainingMs: number;
  readonly aborted: boolean;
  /** Of the session, since it has the lock. */
  readonly states: readonly string[];
  readonly fence: string;
  readonly lease: string;
  /** On the clock of `hrtimeMs`. */
  readonly at: number;
  readonly error?: string;
  readonly loss?: string;
  readonly sinceLastRenewalMs?: number;
}

/** The clock that all processes of the machine share. */
export function hrtimeMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

/** A process of busy-program.js that has its lock. */
export class Busy implements AsyncDisposable {
  /** Its warnings, and all else that it has written to its standard error. */
  warnings = "";

  private constructor(
    readonly child: ChildProcess,
    private readonly said: Said,
    readonly first: BusyReport,
  ) {
    child.stderr?.on("data", (data: Buffer) => {
      this.warnings += String(data);
      process.stderr.write(data);
    });
  }

  /** @param options of `connect` @param env beside that of this process @param cwd its working directory */
  static async start(
    options: object,
    name: string,
    env: NodeJS.ProcessEnv = {},
    cwd?: string,
  ): Promise<Busy> {
    const args = [PROGRAM, JSON.stringify(options), name];
    const child = spawn(process.execPath, args, { stdio: "pipe", cwd, env: { ...process.env, ...env } });
    const said = new Said(child);
    return new Busy(child, said, JSON.parse(await said.next()) as BusyReport);
  }

  /** What the first line says after its main thread has stood still for so long. */
  async block(ms: number): Promise<BusyReport> {
    this.child.stdin?.write(`block ${ms}\n`);
    return JSON.parse(await this.said.next()) as BusyReport;
  }

  /** What it says once `held` is false, after so long at most: until then its main thread does nothing but read that. */
  async watch(ms: number): Promise<BusyReport> {
    this.child.stdin?.write(`watch ${ms}\n`);
    return JSON.parse(await this.said.next()) as BusyReport;
  }

  /** What it says after so long without work. */
  async idle(ms: number): Promise<BusyReport> {
    this.child.stdin?.write(`idle ${ms}\n`);
    return JSON.parse(await this.said.next()) as BusyReport;
  }

  /** Returns the exit code. */
  async end(how: "close" | "orphan"): Promise<number | null> {
    this.child.stdin?.write(`${how}\n`);
    return this.#exit();
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.#exit();
  }

  async #exit(): Promise<number | null> {
    if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, "exit");
    return this.child.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
