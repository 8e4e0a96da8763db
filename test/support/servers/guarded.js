// The starter's end of the pipe to `etcd-guardian.js`, the process that cleans up after a starter that has died.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const GUARDIAN = fileURLToPath(new URL("../etcd/etcd-guardian.js", import.meta.url));

export class Guardian {
  #child;
  #folder;

  /** @param {string} folder */
  constructor(folder) {
    this.#folder = folder;
    this.#child = spawn(process.execPath, [GUARDIAN, folder], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
    });
    this.#child.unref();
    /** @type {Partial<import("node:net").Socket>} */ (this.#child.stdin).unref?.();
    this.#child.stdin.on("error", () => {});
  }

  /** @param {string} line */
  tell(line) {
    this.#child.stdin.write(`${line}\n`);
  }

  async dismiss() {
    this.#child.ref();
    const gone =
      this.#child.exitCode === null && this.#child.signalCode === null && once(this.#child, "exit");
    this.#child.stdin.end();
    await gone;
    await rm(this.#folder, { recursive: true, force: true });
  }
}
