// A disk that is slow for one process: strace delays its calls to fsync and fdatasync.
import { spawn } from "node:child_process";
import { once } from "node:events";

const SYNCS = "fsync,fdatasync";

/** The arguments under which strace delays each flush to the disk. */
export const slowSyncs = (delayMs: number) => [
  ...["-f", "-o", "/dev/null", "-e", `trace=${SYNCS}`],
  ...["-e", `inject=${SYNCS}:delay_enter=${Math.round(delayMs * 1000)}`],
];

/**
 * Attached to one process, which continues undisturbed when strace ends for any reason; strace ends with the process.
 */
export class SlowDisk {
  readonly #child;

  static async of(pid: number, delayMs: number): Promise<SlowDisk> {
    const disk = new SlowDisk(pid, delayMs);
    await disk.#attached();
    return disk;
  }

  private constructor(pid: number, delayMs: number) {
    const args = [...slowSyncs(delayMs), "-p", String(pid)];
    this.#child = spawn("strace", args, { stdio: ["ignore", "ignore", "pipe"], detached: true });
  }

  async end(): Promise<void> {
    const child = this.#child;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill("SIGINT");
    await exited;
  }

  #attached(): Promise<void> {
    return new Promise((resolve, reject) => {
      let said = "";
      this.#child.once("error", reject);
      this.#child.once("exit", () => reject(new Error(`strace: ${said.trim() || "ended"}`)));
      this.#child.stderr.on("data", (chunk: Buffer) => {
        said = `${said}${chunk.toString()}`.slice(-1000);
        if (/attached/.test(said)) resolve();
      });
    });
  }
}
