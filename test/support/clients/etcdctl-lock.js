import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { owned } from "../programs/owned.js";
/** @import { EtcdCluster } from "../etcd/etcd.js" */

/** A running `etcdctl lock NAME`: it prints its key when it holds, and releases the lock on SIGINT. */
export class EtcdctlLock {
  #child;
  /** The key, printed when it holds. @type {Promise<string>} */
  held;
  /** Whether the key has been printed yet. */
  holds = false;

  /** @param {EtcdCluster} etcd @param {string} name @param {{ ttlSeconds?: number }} [options] */
  constructor(etcd, name, { ttlSeconds = 10 } = {}) {
    const { program, args, env } = etcd.etcdctlCommand();
    const command = [...args, "lock", name, `--ttl=${ttlSeconds}`];
    const child = owned(spawn(program, command, { env, stdio: ["ignore", "pipe", "inherit"] }));
    this.#child = child;
    this.held = new Promise((resolve, reject) => {
      createInterface({ input: child.stdout }).once("line", (key) => {
        this.holds = true;
        resolve(key);
      });
      child.once("exit", () => reject(new Error("etcdctl lock ended without having held")));
    });
    this.held.catch(() => {});
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
