// The part of etcd that a lock needs, in memory and with the real protocol, so that a test can falsify its answers.
import { fieldOf, fieldsOf, message } from "../clients/protobuf.js";

/**
 * @typedef {import("../clients/protobuf.js").Field} Field
 * @typedef {import("./raw-server.js").Answer} Answer
 * @typedef {import("./raw-server.js").Call} Call
 * @typedef {{ key: string, value: Buffer, create: bigint, mod: bigint, lease: bigint }} Kv keys as latin1: one character a byte
 * @typedef {{ id: bigint, key: string, end: string, puts: boolean, deletes: boolean, say: (answer: Answer) => void }} Watch
 */

/** @param {Uint8Array | bigint | undefined} from @param {number} number */
const textOf = (from, number) =>
  Buffer.from(/** @type {Buffer} */ (fieldOf(from, number) ?? "")).toString("latin1");
/** @param {Uint8Array | bigint | undefined} from @param {number} number */
const intOf = (from, number) => BigInt.asIntN(64, /** @type {bigint} */ (fieldOf(from, number) ?? 0n));
/** @param {Uint8Array | bigint | undefined} from @param {number} number */
const partsOf = (from, number) =>
  fieldsOf(/** @type {Buffer} */ (from)).flatMap(([each, value]) => (each === number ? [value] : []));

/** @param {string} key @param {string} from @param {string} end */
const within = (key, from, end) => (end === "" ? key === from : key >= from && key < end);

/** @param {Kv} kv @returns {Field[]} */
const kvFields = ({ key, value, create, mod, lease }) => [
  [1, Buffer.from(key, "latin1")],
  [2, create],
  [3, mod],
  [4, 1],
  [5, value],
  [6, lease],
];

export class ToyEtcd {
  revision = 1n;
  /** @type {Map<string, Kv>} */
  keys = new Map();
  /** @type {Map<bigint, { ttl: bigint, until: number }>} */
  leases = new Map();
  /** @type {Set<Watch>} */
  #watches = new Set();
  #clock = setInterval(() => this.#expire(), 50).unref();

  [Symbol.dispose]() {
    clearInterval(this.#clock);
  }

  /** Everything under `name`, holder first. @param {string} name */
  placesOf(name) {
    const prefix = Buffer.from(`${name}/`).toString("latin1");
    return [...this.keys.values()]
      .filter(({ key }) => key.startsWith(prefix))
      .sort((a, b) => (a.create < b.create ? -1 : 1));
  }

  /** @param {Call} call @returns {Answer} */
  answer({ method, request, say }) {
    switch (method) {
      case "LeaseGrant":
        return this.#grant(intOf(request, 2), intOf(request, 1));
      case "LeaseKeepAlive":
        return this.#lease(intOf(request, 1), true);
      case "LeaseTimeToLive":
        return this.#lease(intOf(request, 1), false);
      case "LeaseRevoke":
        return this.#revoke(intOf(request, 1));
      case "Range":
        return { messages: [message(this.#range(request))] };
      case "Txn":
        return this.#txn(request);
      case "Watch":
        return this.#watch(request, say);
      default:
        return { status: 12, details: `unknown method ${method}` };
    }
  }

  /** @returns {Field} */
  header() {
    return [
      1,
      [
        [1, 77n],
        [2, 9n],
        [3, this.revision],
        [4, 3n],
      ],
    ];
  }

  /** @param {bigint} id @param {bigint} ttl @returns {Answer} */
  #grant(id, ttl) {
    if (this.leases.has(id)) return { status: 9, details: "etcdserver: lease already exists" };
    this.leases.set(id, { ttl, until: performance.now() + 1000 * Number(ttl) });
    return { messages: [message([this.header(), [2, id], [3, ttl]])] };
  }

  /** @param {bigint} id @param {boolean} renew @returns {Answer} */
  #lease(id, renew) {
    const lease = this.leases.get(id);
    if (lease && renew) lease.until = performance.now() + 1000 * Number(lease.ttl);
    return { messages: [message([this.header(), [2, id], [3, lease?.ttl ?? (renew ? 0n : -1n)]])] };
  }

  /** @param {bigint} id @returns {Answer} */
  #revoke(id) {
    if (!this.leases.delete(id)) return { status: 5, details: "etcdserver: requested lease not found" };
    const gone = [...this.keys.values()].filter(({ lease }) => lease === id);
    if (gone.length > 0) this.revision++;
    for (const { key } of gone) this.#delete(key);
    return { messages: [message([this.header()])] };
  }

  #expire() {
    for (const [id, { until }] of this.leases) if (until < performance.now()) this.#revoke(id);
  }

  /** @param {Buffer} request @returns {Field[]} */
  #range(request) {
    const [key, end] = [textOf(request, 1), textOf(request, 2)];
    const [limit, order, newest] = [intOf(request, 3), intOf(request, 5), intOf(request, 13)];
    const all = [...this.keys.values()].filter((kv) => within(kv.key, key, end));
    const found = all.filter(({ create }) => newest === 0n || create <= newest);
    found.sort((a, b) => (order === 2n ? -1 : 1) * (a.create < b.create ? -1 : 1));
    const told = limit === 0n ? found : found.slice(0, Number(limit));
    const kvs = told.map((kv) => /** @type {Field} */ ([2, kvFields(kv)]));
    return [this.header(), ...kvs, [3, told.length < found.length], [4, all.length]];
  }

  /** @param {Buffer} request @returns {Answer} */
  #txn(request) {
    const succeeded = partsOf(request, 1).every((compare) => this.#holds(compare));
    const operations = partsOf(request, succeeded ? 2 : 3);
    const puts = operations.map((operation) => fieldOf(operation, 2)).filter((put) => put !== undefined);
    if (puts.map((put) => intOf(put, 3)).some((lease) => lease !== 0n && !this.leases.has(lease)))
      return { status: 5, details: "etcdserver: requested lease not found" };
    if (operations.some((each) => fieldOf(each, 1) === undefined)) this.revision++;
    const responses = operations.map((each) => /** @type {Field} */ ([3, [this.#apply(each)]]));
    return { messages: [message([this.header(), [2, succeeded], ...responses])] };
  }

  /** @param {Buffer | bigint} compare created at, modified at, nothing in, or value is */
  #holds(compare) {
    const [key, end] = [textOf(compare, 3), textOf(compare, 64)];
    const found = [...this.keys.values()].filter((kv) => within(kv.key, key, end));
    if (intOf(compare, 2) === 3n)
      return found.some(({ value }) => value.toString("latin1") === textOf(compare, 7));
    if (intOf(compare, 2) === 2n) return found.some(({ mod }) => mod === intOf(compare, 6));
    const create = intOf(compare, 5);
    return create === 0n ? found.length === 0 : found.some((kv) => kv.create === create);
  }

  /** @param {Buffer | bigint} operation @returns {Field} */
  #apply(operation) {
    const [range, put, gone] = [1, 2, 3].map((number) => /** @type {Buffer} */ (fieldOf(operation, number)));
    if (range) return [1, this.#range(range)];
    if (put) this.#put(textOf(put, 1), /** @type {Buffer} */ (fieldOf(put, 2)), intOf(put, 3));
    else this.#delete(textOf(gone, 1));
    return [put ? 2 : 3, [this.header()]];
  }

  /** @param {string} key @param {Buffer} value @param {bigint} lease */
  #put(key, value, lease) {
    const kv = { key, value, create: this.keys.get(key)?.create ?? this.revision, mod: this.revision, lease };
    this.keys.set(key, kv);
    this.#tell(0, kv);
  }

  /** @param {string} key */
  #delete(key) {
    const kv = this.keys.get(key);
    if (!kv || !this.keys.delete(key)) return;
    this.#tell(1, { ...kv, value: Buffer.alloc(0), create: 0n, mod: this.revision, lease: 0n });
  }

  /** @param {0 | 1} type PUT or DELETE @param {Kv} kv */
  #tell(type, kv) {
    for (const { id, key, end, puts, deletes, say } of this.#watches) {
      if (!within(kv.key, key, end) || !(type === 0 ? puts : deletes)) continue;
      say({
        messages: [
          message([
            this.header(),
            [2, id],
            [
              11,
              [
                [1, type],
                [2, kvFields(kv)],
              ],
            ],
          ]),
        ],
      });
    }
  }

  /**
   * Only events from now on: no test requests past ones. @param {Buffer} request @param {(answer: Answer) => void} say
   * @returns {Answer}
   */
  #watch(request, say) {
    const [create, cancel] = [fieldOf(request, 1), fieldOf(request, 2)];
    if (cancel) return this.#cancel(intOf(cancel, 1), say);
    if (!create) return { messages: [message([this.header(), [2, -1n]])] };
    const filter = fieldOf(create, 5) ?? 0n;
    const puts = Number(typeof filter === "bigint" ? filter : filter[0]) === 1;
    const id = intOf(create, 7);
    this.#watches.add({ id, key: textOf(create, 1), end: textOf(create, 2), puts, deletes: !puts, say });
    return { messages: [message([this.header(), [2, id], [3, true]])] };
  }

  /** @param {bigint} id @param {(answer: Answer) => void} say @returns {Answer} */
  #cancel(id, say) {
    for (const watch of this.#watches) if (watch.id === id && watch.say === say) this.#watches.delete(watch);
    return { messages: [message([this.header(), [2, id], [4, true]])] };
  }
}
