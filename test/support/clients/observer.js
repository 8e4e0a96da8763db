// The server's own view of a prefix: a plain watch on one member that bypasses every proxy; each event has its local
// time.
import { EventEmitter, once } from "node:events";
import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";

/**
 * @typedef {{ type: "PUT" | "DELETE", key: string, create: bigint, mod: bigint, at: bigint }} Seen
 *   `at`: when it was seen, on the monotonic clock that all processes of one machine share: never before it happened.
 */

export class Observer {
  #client;
  #events = new EventEmitter();
  /** @type {import("etcd3").IDuplexStream<any, any> | undefined} */
  #stream;
  /** @type {Error | undefined} */
  #failure;
  /** @type {Map<string, bigint>} create revisions of the live keys */
  #live = new Map();
  /** @type {Seen[]} */
  seen = [];

  /** @param {string} endpoint */
  constructor(endpoint) {
    this.#events.setMaxListeners(0);
    this.#client = new Etcd3({ hosts: endpoint, faultHandling: { global: noop, host: () => noop } });
  }

  /** @param {string} prefix */
  async watch(prefix) {
    const stream = await this.#client.watchClient.watch();
    this.#stream = stream;
    const created = new Promise((resolve) => this.#events.once("created", resolve));
    stream.on("data", (answer) => this.#heard(answer));
    stream.on("error", (error) => {
      this.#failure = error;
      this.#events.emit("news");
    });
    const end = Buffer.from(prefix);
    end[end.length - 1] = /** @type {number} */ (end.at(-1)) + 1;
    stream.write({ create_request: { key: Buffer.from(prefix), range_end: end } });
    await created;
  }

  /** @param {any} answer */
  #heard({ created, events }) {
    const at = process.hrtime.bigint();
    if (created) this.#events.emit("created");
    for (const { type, kv } of events) {
      const key = String(kv.key);
      const gone = type === "Delete" || type === "DELETE";
      const create = gone ? (this.#live.get(key) ?? 0n) : BigInt(kv.create_revision);
      if (gone) this.#live.delete(key);
      else this.#live.set(key, create);
      this.seen.push({ type: gone ? "DELETE" : "PUT", key, create, mod: BigInt(kv.mod_revision), at });
    }
    this.#events.emit("news");
  }

  /** The first matching event, past or future. @param {(event: Seen) => boolean} which */
  async first(which) {
    for (;;) {
      const found = this.seen.find(which);
      if (found) return found;
      if (this.#failure) throw this.#failure;
      await once(this.#events, "news");
    }
  }
  /** @param {string} key @param {bigint} create the place's create revision */
  deleted(key, create) {
    return this.first((event) => event.type === "DELETE" && event.key === key && event.create === create);
  }
  /** @param {string} prefix */
  put(prefix) {
    return this.first((event) => event.type === "PUT" && event.key.startsWith(prefix));
  }

  [Symbol.dispose]() {
    this.#stream?.end();
    this.#stream?.cancel();
    this.#client.close();
  }
}

/** @param {string} endpoint @param {string} prefix such as "name/" */
export async function observe(endpoint, prefix) {
  const observer = new Observer(endpoint);
  await observer.watch(prefix);
  return observer;
}
