// @ts-check
// The part of etcd's API that the demo's counter and observer need, over gRPC: it shares no code with the library that it judges.
import http2 from "node:http2";
import { setTimeout as delay } from "node:timers/promises";

/** Fields of a message by their numbers. A number is a varint, any other value has a length; zero and "" are left out. */
/** @typedef {readonly (readonly [field: number, value: number | string | Uint8Array])[]} Fields */
/** @typedef {Map<number, (number | Buffer)[]>} Message */

/** Field numbers and enums of etcd's rpc.proto and kv.proto. */
const COMPARE = { equal: 0, create: 1 };
const DEADLINE_MS = 1000;
/** The flag for compression and the length, which precede each message. */
const HEAD = 5;

/** @param {Fields} fields */
function encode(fields) {
  const parts = fields.flatMap(([field, value]) => {
    if (typeof value === "number") return value === 0 ? [] : [varint(field * 8), varint(value)];
    const bytes = Buffer.from(value);
    return bytes.length === 0 ? [] : [varint(field * 8 + 2), varint(bytes.length), bytes];
  });
  return Buffer.concat(parts);
}

/** @param {number} value */
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return Buffer.from([...bytes, value]);
}

/** @param {Buffer} bytes @returns {Message} */
function decode(bytes) {
  let at = 0;
  const number = () => {
    for (let value = 0, unit = 1; ; unit *= 128) {
      const byte = bytes.readUInt8(at++);
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  /** @type {Message} */
  const message = new Map();
  while (at < bytes.length) {
    const tag = number();
    const field = Math.floor(tag / 8);
    const value = number();
    if (tag % 8 === 2) at += value;
    const read = tag % 8 === 2 ? bytes.subarray(at - value, at) : value;
    message.set(field, [...(message.get(field) ?? []), read]);
  }
  return message;
}

/** @param {Message} message @param {number} field */
const numberIn = (message, field) => Number(message.get(field)?.[0] ?? 0);

/** @param {Message} message @param {number} field @returns {Message[]} */
const messagesIn = (message, field) =>
  (message.get(field) ?? []).map((each) => decode(/** @type {Buffer} */ (each)));

/** @param {Message} message @param {number} field */
const textIn = (message, field) => String(message.get(field)?.[0] ?? "");

/** The revision in the header, which is the first field of each answer. @param {Message} answer */
const revisionIn = (answer) => messagesIn(answer, 1).map((header) => numberIn(header, 3))[0] ?? 0;

/** The keys below a prefix. @param {string} prefix @returns {Fields} */
function rangeOf(prefix) {
  const end = Buffer.from(prefix);
  end[end.length - 1] = (end[end.length - 1] ?? 0) + 1;
  return [
    [1, prefix],
    [2, end],
  ];
}

export class EtcdClient {
  #endpoints;
  /** Which endpoint is asked: another one after each failure. */
  #turn = 0;
  /** @type {import("node:http2").ClientHttp2Session | undefined} */
  #session;

  /** @param {readonly string[]} endpoints */
  constructor(endpoints) {
    this.#endpoints = endpoints;
  }

  /** @returns {Promise<number>} the store's revision, from a quorum read */
  async revision({ forMs = 10_000 } = {}) {
    const request = encode([
      [1, "\0"],
      [9, 1],
    ]);
    return revisionIn(await this.#until("KV/Range", request, forMs));
  }

  /** @param {string} key @returns {Promise<string>} "" if there is no such key */
  async get(key) {
    const answer = await this.#until("KV/Range", encode([[1, key]]));
    return messagesIn(answer, 2).map((kv) => textIn(kv, 5))[0] ?? "";
  }

  /** @param {string} prefix */
  async deletePrefix(prefix) {
    await this.#until("KV/DeleteRange", encode(rangeOf(prefix)));
  }

  /**
   * After an error it may have been applied.
   * @param {string} key
   * @param {string} value
   * @param {{ forMs?: number }} [options] one attempt unless given
   */
  async put(key, value, { forMs = 0 } = {}) {
    await this.#until("KV/Put", encode(putOf(key, value)), forMs);
  }

  /**
   * One attempt: after an error it may have been applied.
   * @param {readonly [key: string, column: "Create", comparator: "==", revision: string]} condition of `whileHeld`
   * @param {string} key
   * @param {string} value
   * @returns {Promise<boolean>} whether the condition was true, and the value was put
   */
  async putIf([held, , , revision], key, value) {
    const compare = encode([
      [1, COMPARE.equal],
      [2, COMPARE.create],
      [3, held],
      [5, Number(revision)],
    ]);
    const request = encode([
      [1, compare],
      [2, encode([[2, encode(putOf(key, value))]])],
    ]);
    return numberIn(await this.#until("KV/Txn", request, 0), 2) === 1;
  }

  /**
   * Every change below `prefix` after `revision`, in etcd's order, each once, even when members die, until the caller stops.
   * @param {string} prefix
   * @param {number} revision
   * @returns {AsyncGenerator<Omit<import("./history.js").Change, "t">, void, void>}
   */
  async *watch(prefix, revision) {
    for (let seen = revision; ;) {
      try {
        const create = encode([...rangeOf(prefix), [3, seen + 1]]);
        for await (const answer of this.#stream("Watch/Watch", encode([[1, create]]))) {
          if (numberIn(answer, 4)) throw new CompactedError(`etcd ended the watch: ${textIn(answer, 6)}`);
          const events = messagesIn(answer, 11);
          for (const event of events) yield changeOf(event);
          if (events.length > 0) seen = Math.max(seen, revisionIn(answer));
        }
      } catch (error) {
        if (error instanceof CompactedError) throw error;
      }
      await delay(50);
    }
  }

  close() {
    this.#session?.destroy();
  }

  /** One request, tried on one member after the other. @param {string} path @param {Buffer} request */
  async #until(path, request, forMs = 10_000) {
    const until = performance.now() + forMs;
    for (;;) {
      try {
        return await this.#once(path, request);
      } catch (error) {
        if (performance.now() > until) throw error;
        await delay(100);
      }
    }
  }

  /** @param {string} path @param {Buffer} request @returns {Promise<Message>} */
  async #once(path, request) {
    const { stream, left } = this.#open(path, request, AbortSignal.timeout(DEADLINE_MS));
    try {
      stream.end();
      return decode((await answerOf(stream)).subarray(HEAD));
    } catch (error) {
      throw left(error);
    }
  }

  /** @param {string} path @param {Buffer} request @returns {AsyncGenerator<Message, void, void>} */
  async *#stream(path, request) {
    const { stream, left } = this.#open(path, request);
    let rest = Buffer.alloc(0);
    try {
      for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
        rest = Buffer.concat([rest, chunk]);
        while (rest.length >= HEAD && rest.length >= HEAD + rest.readUInt32BE(1)) {
          const end = HEAD + rest.readUInt32BE(1);
          yield decode(rest.subarray(HEAD, end));
          rest = rest.subarray(end);
        }
      }
      throw new Error("the stream has ended");
    } catch (error) {
      throw left(error);
    } finally {
      // Not in a callback by which the connection is read: on Node.js 20, such a reset never returns.
      setImmediate(() => stream.destroy());
    }
  }

  /**
   * @param {string} path
   * @param {Buffer} request
   * @param {AbortSignal} [signal]
   */
  #open(path, request, signal) {
    const endpoint = this.#endpoints[this.#turn % this.#endpoints.length] ?? "";
    if (this.#session?.closed !== false) {
      this.#session = http2.connect(endpoint);
      // Each of its streams fails with it.
      this.#session.on("error", () => {});
    }
    const session = this.#session;
    const stream = session.request(
      {
        ":method": "POST",
        ":path": `/etcdserverpb.${path}`,
        "content-type": "application/grpc",
        te: "trailers",
      },
      { endStream: false, ...(signal && { signal }) },
    );
    const head = Buffer.alloc(HEAD);
    head.writeUInt32BE(request.length, 1);
    stream.write(Buffer.concat([head, request]));
    /** The next call asks the next member. @param {unknown} error */
    const left = (error) => {
      if (session === this.#session) this.#turn++;
      if (session === this.#session) this.#session = undefined;
      session.destroy();
      return new Error(`${endpoint}: ${/** @type {Error | undefined} */ (error)?.message}`, { cause: error });
    };
    return { stream, left };
  }
}

/**
 * @param {import("node:http2").ClientHttp2Stream} stream
 * @returns {Promise<Buffer>}
 */
function answerOf(stream) {
  return new Promise((resolve, reject) => {
    /** @type {Buffer[]} */
    const chunks = [];
    /** @type {import("node:http2").IncomingHttpHeaders} */
    let last = {};
    for (const event of ["response", "trailers"]) stream.on(event, (headers) => (last = headers));
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("error", reject);
    stream.on("close", () => {
      const { "grpc-status": status, "grpc-message": message, ":status": http } = last;
      if (status === "0") resolve(Buffer.concat(chunks));
      else reject(new Error(`answered ${String(message ?? status ?? http ?? "nothing")}`));
    });
  });
}

/** @param {string} key @param {string} value @returns {Fields} */
const putOf = (key, value) => [
  [1, key],
  [2, value],
];

/** @param {Message} event @returns {Omit<import("./history.js").Change, "t">} */
function changeOf(event) {
  const kv = messagesIn(event, 2)[0] ?? new Map();
  return {
    type: numberIn(event, 1) === 1 ? "DELETE" : "PUT",
    key: textIn(kv, 1),
    revision: numberIn(kv, 3),
    create: numberIn(kv, 2),
    value: textIn(kv, 5),
  };
}

/** This run's history is not complete: no verdict is possible. */
class CompactedError extends Error {}
