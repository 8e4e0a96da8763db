import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { guardiansOf } from "./guardians.js";
import { isRunning, pidsWith } from "./process-state.js";
import { Said } from "./said.js";

export const GUARDED_PROGRAM = fileURLToPath(new URL("guarded-program.js", import.meta.url));

export type GuardedEnd = "wait" | "exit" | "throw" | "memory" | "orphan" | "close" | "fork";

let started = 0;

/** A process of guarded-program.js that has its locks. */
export class Guarded implements AsyncDisposable {
  private constructor(
    readonly child: ChildProcess,
    private readonly said: Said,
    readonly leases: readonly bigint[],
    readonly fences: readonly bigint[],
    private readonly mark: string,
    /** The process ID of its child, if `how` was "fork": who ends it is the caller. */
    readonly heir: number | undefined,
  ) {}

  /** @param options of `connect` @param setting of the process */
  static async start(
    options: object,
    names: readonly string[],
    how: GuardedEnd = "wait",
    setting: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
  ): Promise<Guarded> {
    const args = ["--max-old-space-size=64", GUARDED_PROGRAM, JSON.stringify(options), names.join(","), how];
    // A guardian gets this variable, and no other process of Node.js uses it with these flags.
    const mark = `/leasehold-guarded-${process.pid}-${++started}`;
    const env = { ...(setting.env ?? process.env), SSL_CERT_DIR: mark };
    const child = spawn(process.execPath, args, { stdio: "pipe", ...setting, env });
    const said = new Said(child);
    // Certificates or passwords were read first.
    const line = await said.first((word) => word.startsWith("{"));
    const { leases, fences, heir } = JSON.parse(line) as {
      leases: string[];
      fences: string[];
      heir?: number;
    };
    return new Guarded(
      child,
      said,
      leases.map((lease) => BigInt(`0x${lease}`)),
      fences.map(BigInt),
      mark,
      heir,
    );
  }

  /** The process IDs of its guardians. */
  get guardians(): readonly number[] {
    return guardiansOf(this.child.pid ?? 0);
  }

  /** `kill -9` of its guardian. Resolves when another one runs, and has been told everything. */
  async killGuardian(): Promise<void> {
    const [guardian = 0] = [...this.guardians, ...this.apart];
    const isGuarded = new Promise<void>((resolve) =>
      this.child.stdout?.on("data", (text) => String(text).includes("guarded\n") && resolve()),
    );
    process.kill(guardian, "SIGKILL");
    await isGuarded;
  }

  /** Resolves when the program has read its certificates once more, and has used them. */
  async readsCertificates(): Promise<void> {
    await this.said.later();
  }

  /** Resolves when the program has read this password, and has used it. */
  async readsPassword(password: string): Promise<void> {
    await this.said.first((word) => word === `password ${password}`);
  }

  /** Those that are not its children: in PM2, which kills what is. */
  get apart(): readonly number[] {
    const { pid = 0 } = this.child;
    const own = [pid, ...this.guardians];
    return pidsWith(`SSL_CERT_DIR=${this.mark}`).filter((each) => !own.includes(each));
  }

  /** As `how` said. Resolves when it has ended. */
  async end(): Promise<void> {
    this.child.stdin?.write("end\n");
    await this.#exit();
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.#exit();
  }

  async #exit(): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, "exit");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill("SIGCONT");
    const guardians = [...this.guardians, ...this.apart];
    await this.kill();
    // Its etcd may be gone.
    for (const pid of guardians.filter(isRunning)) endNow(pid);
  }
}

function endNow(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}
