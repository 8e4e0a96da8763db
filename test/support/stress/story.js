// Hand-made runs for the checker's own tests. Revisions and milliseconds are small numbers that a reader can follow.
/** @import { Nemesis, Run, ServerEvent, Setting, Step } from "./history.js" */

const LOCK = "lock/a";
/** @type {Setting} */
const setting = { ttlSeconds: 2, locks: "lock/", registers: "reg/" };
/** @param {number} at milliseconds */
const ns = (at) => BigInt(Math.round(at * 1e6));

/** Collects steps and server events in the order in which they are told; `run()` sorts the steps by time. */
export class Story {
  /** @type {Step[]} */ #steps = [];
  /** @type {ServerEvent[]} */ #server = [];
  /** @type {Map<string, bigint>} */ #created = new Map();

  /** @param {number} at @param {string} p @param {number} id @param {number} rev */
  ask(at, p, id, rev, { key = `${LOCK}/${p}`, owner = `${p}/own` } = {}) {
    this.#steps.push({ k: "invoke", f: "acquire", t: ns(at), p, id, lock: LOCK, owner });
    this.put(at, rev, key, { owner });
    return this;
  }

  /** @param {number} at @param {string} p @param {number} id @param {number} token */
  grant(at, p, id, token, { key = `${LOCK}/${p}`, held = true } = {}) {
    const of = { t: ns(at), p, id, lock: LOCK, token: BigInt(token) };
    this.#steps.push({ k: "ok", f: "acquire", ...of, key, held });
    return this;
  }

  /** An acquire that was aborted or timed out. @param {number} at @param {string} p @param {number} id */
  giveUp(at, p, id) {
    this.#steps.push({ k: "fail", f: "acquire", t: ns(at), p, id, lock: LOCK, err: "AbortError" });
    return this;
  }

  /** @param {number} at @param {string} p @param {number} id @param {number} token */
  claim(at, p, id, token, held = true) {
    this.#steps.push({ k: "claim", t: ns(at), p, id, lock: LOCK, token: BigInt(token), held });
    return this;
  }

  /** Asks for and ends a release, whose deletion is revision `rev`. @param {number} at @param {string} p @param {number} id @param {number} rev */
  release(at, p, id, rev, { key = `${LOCK}/${p}` } = {}) {
    const of = /** @type {const} */ ({ f: "release", p, id, lock: LOCK });
    this.#steps.push({ k: "invoke", t: ns(at), ...of }, { k: "ok", t: ns(at + 2), ...of });
    return this.del(at + 1, rev, key);
  }

  /** A read of the register, answered at revision `rev`. @param {number} at @param {string} p @param {number} id @param {number} rev */
  read(at, p, id, rev) {
    this.#steps.push({ k: "ok", f: "read", t: ns(at), p, id, lock: LOCK, rev: BigInt(rev) });
    return this;
  }

  /**
   * A guarded write and how it was told; it is on the server if `rev` is given.
   * @param {number} at @param {string} p @param {number} id
   * @param {{ token: number, seq: number, k?: "ok" | "fail" | "info", rev?: number, told?: number, write?: string, asked?: boolean }} what
   */
  write(at, p, id, { token, seq, k = "ok", rev, told = rev, write = `${p}#${id}/${seq}`, asked = true }) {
    const of = /** @type {const} */ ({ f: "write", p, id, lock: LOCK, write });
    if (asked) this.#steps.push({ k: "invoke", t: ns(at), ...of });
    if (asked)
      this.#steps.push({ k, t: ns(at + 1), ...of, seq, ...(told !== undefined && { rev: BigInt(told) }) });
    if (rev !== undefined) this.put(at, rev, `reg/${LOCK}`, { token: String(token), seq, write });
    return this;
  }

  /** @param {number} at @param {Nemesis["fault"]} fault @param {string} target @param {boolean} on */
  fault(at, fault, target, on) {
    this.#steps.push({ k: "nemesis", t: ns(at), p: "nemesis", fault, target, on });
    return this;
  }

  /** @param {number} at @param {"idle" | "end"} when @param {{ keys?: string[], leases?: string[] }} [what] */
  leftovers(at, when, { keys = [], leases = [] } = {}) {
    this.#steps.push({ k: "leftovers", t: ns(at), p: "run", when, keys, leases });
    return this;
  }

  /** @param {number} at @param {number} rev @param {string} key @param {object} value */
  put(at, rev, key, value) {
    const create = this.#created.get(key) ?? BigInt(rev);
    this.#created.set(key, create);
    return this.#event(at, rev, { type: "PUT", key, create, value: JSON.stringify(value) });
  }

  /** @param {number} at @param {number} rev @param {string} key */
  del(at, rev, key) {
    const create = this.#created.get(key) ?? 0n;
    this.#created.delete(key);
    return this.#event(at, rev, { type: "DELETE", key, create, value: "" });
  }

  /** @param {number} at @param {number} rev @param {Pick<ServerEvent, "type" | "key" | "create" | "value">} event */
  #event(at, rev, event) {
    this.#server.push({ rev: BigInt(rev), tSeen: ns(at + 0.5), lease: "7", ...event });
    return this;
  }

  /** @returns {Run} */
  run() {
    const history = [...this.#steps].sort((a, b) => Number(a.t - b.t));
    const server = [...this.#server].sort((a, b) => Number(a.rev - b.rev));
    return { history, server, setting };
  }
}

/** Two processes, one after the other, each with one write: nothing to complain about. */
export const goodStory = () =>
  new Story()
    .ask(0, "w1", 1, 10)
    .grant(2, "w1", 1, 10)
    .ask(5, "w2", 1, 11)
    .read(6, "w1", 1, 11)
    .claim(7, "w1", 1, 10)
    .write(7, "w1", 1, { token: 10, seq: 1, rev: 12 })
    .claim(20, "w1", 1, 10)
    .release(20, "w1", 1, 13)
    .grant(22, "w2", 1, 11)
    .read(23, "w2", 1, 13)
    .claim(24, "w2", 1, 11)
    .write(24, "w2", 1, { token: 11, seq: 2, rev: 14 })
    .claim(40, "w2", 1, 11)
    .release(40, "w2", 1, 15)
    .leftovers(50, "idle")
    .leftovers(60, "end");
