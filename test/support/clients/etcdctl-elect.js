import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { createInterface } from "node:readline";
import { owned } from "../programs/owned.js";
/** @import { EtcdCluster } from "../etcd/etcd.js" */

/**
 * A running `etcdctl elect NAME VALUE`, or with `-l` instead of a value. It prints key and value when it leads, or
 * those of each leader that it observes, and resigns on SIGINT.
 */
export class EtcdctlElect {
  #child;
  #news = new EventEmitter();
  /** The lines printed so far. @type {string[]} */
  #lines = [];

  /** @param {EtcdCluster} etcd @param {string} name @param {string} value */
  constructor(etcd, name, value) {
    const { program, args, env } = etcd.etcdctlCommand();
    const child = owned(
      spawn(program, [...args, "elect", name, value], { env, stdio: ["ignore", "pipe", "inherit"] }),
    );
    this.#child = child;
    this.#news.setMaxListeners(0);
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.#lines.push(line);
      this.#news.emit("news");
    });
    child.once("exit", () => this.#news.emit("exit"));
  }

  /** Whether it leads, or has observed a leader, so far. */
  get leads() {
    return this.#lines.length >= 2;
  }

  /**
   * The `n`th leader that it prints, from 1; a candidate prints itself.
   * @returns {Promise<{ key: string, value: string }>}
   */
  async leader(n = 1) {
    while (this.#lines.length < 2 * n) {
      if (this.#over) throw new Error("etcdctl elect ended before it had printed that");
      await Promise.race([once(this.#news, "news"), once(this.#news, "exit")]);
    }
    const [key = "", value = ""] = this.#lines.slice(2 * n - 2);
    return { key, value };
  }

  /** Sends SIGINT, like Ctrl-C. */
  async resign() {
    await this.#end("SIGINT");
  }

  get #over() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** @param {NodeJS.Signals} signal */
  async #end(signal) {
    if (this.#over) return;
    const exited = once(this.#child, "exit");
    this.#child.kill(signal);
    await exited;
  }

  async [Symbol.asyncDispose]() {
    await this.#end("SIGKILL");
  }
}
