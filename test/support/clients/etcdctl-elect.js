import { spawn } from "node:child_process";
import { once } from "node:events";
import { owned } from "../programs/owned.js";
import { Said } from "../programs/said.js";
/** @import { EtcdCluster } from "../etcd/etcd.js" */

/**
 * A running `etcdctl elect NAME VALUE`, or with `-l` instead of a value. It prints key and value when it leads, or
 * those of each leader that it observes, and resigns on SIGINT.
 */
export class EtcdctlElect {
  #child;
  #said;

  /** @param {EtcdCluster} etcd @param {string} name @param {string} value */
  constructor(etcd, name, value) {
    const { program, args, env } = etcd.etcdctlCommand();
    const child = owned(
      spawn(program, [...args, "elect", name, value], { env, stdio: ["ignore", "pipe", "pipe"] }),
    );
    this.#child = child;
    this.#said = new Said(child);
  }

  /** Whether it leads, or has observed a leader, so far. */
  get leads() {
    return this.#said.words.length >= 2;
  }

  /**
   * The `n`th leader that it prints, from 1; a candidate prints itself.
   * @returns {Promise<{ key: string, value: string }>}
   */
  async leader(n = 1) {
    const [key, value] = await Promise.all([this.#said.word(2 * n - 2), this.#said.word(2 * n - 1)]);
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
