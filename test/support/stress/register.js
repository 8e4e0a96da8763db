import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";
import { whileHeld } from "./leasehold.js";
/** @import { Lock } from "../../../src/index.js" */

const CALL_MS = 1000;

/**
 * A counter in etcd per lock, written only under the lock's guard and never retried: a holder's own etcd client, as
 * a user would have it.
 */
export class Register {
  #clients;
  #prefix;
  #at;

  /** @param {readonly string[]} hosts @param {string} prefix @param {number} first which host to use first */
  constructor(hosts, prefix, first) {
    const settings = {
      faultHandling: { global: noop, host: () => noop },
      grpcOptions: { "grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 500 },
    };
    this.#clients = hosts.map((host) => new Etcd3({ hosts: host, ...settings }));
    this.#prefix = prefix;
    this.#at = first % hosts.length;
  }

  /** @param {string} lock @returns {Promise<{ seq: number, rev: bigint }>} a read that needs a quorum */
  async read(lock) {
    const answer = await this.#call((client) =>
      client
        .get(this.#prefix + lock)
        .options({ deadline: deadline() })
        .exec(),
    );
    const [kv] = answer.kvs;
    const seq = kv === undefined ? 0 : JSON.parse(kv.value.toString()).seq;
    return { seq, rev: BigInt(answer.header.revision) };
  }

  /**
   * @param {Lock} lock @param {{ seq: number, write: string }} value
   * @returns {Promise<{ accepted: boolean, rev: bigint }>} rejects when the outcome is unknown
   */
  async write(lock, value) {
    const text = JSON.stringify({ token: String(lock.fence), ...value });
    const answer = await this.#call((client) =>
      client
        .if(...whileHeld(lock))
        .then(client.put(this.#prefix + lock.name).value(text))
        .options({ deadline: deadline() })
        .commit(),
    );
    return { accepted: answer.succeeded, rev: BigInt(answer.header.revision) };
  }

  close() {
    for (const client of this.#clients) client.close();
  }

  /** @template T @param {(client: Etcd3) => Promise<T>} send @returns {Promise<T>} */
  async #call(send) {
    try {
      return await send(/** @type {Etcd3} */ (this.#clients[this.#at]));
    } catch (error) {
      this.#at = (this.#at + 1) % this.#clients.length;
      throw error;
    }
  }
}

const deadline = () => Date.now() + CALL_MS;
