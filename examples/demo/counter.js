// @ts-check
// The resource that the lock protects: a number in etcd that is read, incremented and written back in separate steps.
import { setTimeout as delay } from "node:timers/promises";
import { whileHeld } from "leasehold";
import { EtcdClient } from "./client.js";

/** @typedef {{ n: number, fence: number, by: string, op: string }} Count */
/**
 * `refused late`: finally refused, but an earlier attempt got no answer and may have been applied.
 * @typedef {"accepted" | "refused" | "refused late" | "unknown"} Outcome
 */

const ATTEMPTS = 30;

export class Counter {
  #client;
  #key;

  /**
   * @param {string[]} hosts
   * @param {string} key
   */
  constructor(hosts, key) {
    this.#key = key;
    this.#client = new EtcdClient(hosts);
  }

  /** @returns {Promise<number>} */
  async read() {
    const text = await this.#client.get(this.#key);
    return text === "" ? 0 : /** @type {Count} */ (JSON.parse(text)).n;
  }

  /**
   * Writes only while this particular hold exists: etcd compares in the same transaction that writes.
   * A repetition is harmless, because within one hold it writes the same value.
   * @param {import("leasehold").Lock} lock
   * @param {Count} count
   */
  writeFenced(lock, count) {
    return outcomeOf(() => this.#client.putIf(whileHeld(lock), this.#key, JSON.stringify(count)));
  }

  /**
   * `--sabotage fence`: the write of a program that trusts the lock alone.
   * @param {Count} count
   */
  writeUnfenced(count) {
    return outcomeOf(async () => {
      await this.#client.put(this.#key, JSON.stringify(count));
      return true;
    });
  }

  close() {
    this.#client.close();
  }
}

/**
 * @param {() => Promise<boolean>} write
 * @returns {Promise<Outcome>}
 */
async function outcomeOf(write) {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    try {
      if (await write()) return "accepted";
      return attempt === 1 ? "refused" : "refused late";
    } catch {
      await delay(100);
    }
  }
  return "unknown";
}
