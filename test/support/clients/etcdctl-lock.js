import { spawn } from "node:child_process";
import { once } from "node:events";
import { owned } from "../programs/owned.js";
import { Said } from "../programs/said.js";
/** @import { EtcdCluster } from "../etcd/etcd.js" */

/** A running `etcdctl lock NAME`: it prints its key when it holds, and releases the lock on SIGINT. */
export class EtcdctlLock {
  #child;
  #said;
  /** The key, printed when it holds. @type {Promise<string>} */
  held;

  /** @param {EtcdCluster} etcd @param {string} name @param {{ ttlSeconds?: number }} [options] */
  constructor(etcd, name, { ttlSeconds = 10 } = {}) {
    const { program, args, env } = etcd.etcdctlCommand();
    const command = [...args, "lock", name, `--ttl=${ttlSeconds}`];
    const child = owned(spawn(program, command, { env, stdio: ["ignore", "pipe", "pipe"] }));
    this.#child = child;
    this.#said = new Said(child);
    this.held = this.#said.next();
    this.held.catch(() => {});
  }

  /** Whether the key has been printed yet. */
  get holds() {
    return this.#said.words.length > 0;
  }

  /** Sends SIGINT, like Ctrl-C: releases the lock, or leaves the queue. */
  async release() {
    await this.#end("SIGINT");
  }

  /** kill -9: its lease remains until it expires. */
  async kill() {
    await this.#end("SIGKILL");
  }

  /** @param {NodeJS.Signals} signal */
  async #end(signal) {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill(signal);
    await exited;
  }

  async [Symbol.asyncDispose]() {
    await this.kill();
  }
}
