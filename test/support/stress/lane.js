import { setTimeout as delay } from "node:timers/promises";
import { now } from "./journal.js";
import * as leasehold from "./leasehold.js";
import { seeded } from "./random.js";
/** @import { Cluster, Lock, Mutex, Session } from "../../../src/index.js" */
/** @import { Register } from "./register.js" */

/**
 * @typedef {object} Context
 * @property {string} p
 * @property {Cluster} cluster
 * @property {Register} register
 * @property {number} ttlSeconds
 * @property {readonly string[]} locks
 * @property {() => boolean} finishing
 * @property {(step: object) => void} note
 */

/** How a lock may be taken and given back; those named twice come twice as often. */
const WAYS = "lock lock timeout abort abort try with with close".split(" ");

let ids = 0;

/** One line of work in a process: takes a lock in a random way, uses it, gives it back, and so on. */
export class Lane {
  /** @type {Session | undefined} */ #session;
  #context;
  #random;
  #kind;
  #owner;

  /** @param {Context} context @param {{ n: number, kind: string, seed: string }} of */
  constructor(context, { n, kind, seed }) {
    this.#context = context;
    this.#random = seeded(seed);
    this.#kind = kind;
    this.#owner = kind === "shared" ? `${context.p}/shared` : `${context.p}/${n}`;
  }

  async run() {
    while (!this.#context.finishing()) {
      const source = await this.#source();
      if (source !== undefined) await this.#once(source);
      await delay(this.#random.between(0, 40));
    }
  }

  async close() {
    await this.#endSession({});
  }

  /** Its own session, opened anew after a loss, or the cluster's standing one. */
  async #source() {
    const { cluster, ttlSeconds } = this.#context;
    if (this.#kind === "shared") return cluster;
    if (this.#session?.state === "live" || this.#session?.state === "jeopardy") return this.#session;
    try {
      this.#session = await leasehold.Session.open(cluster, {
        ttlSeconds,
        owner: this.#owner,
        timeoutMs: 3000,
      });
      return this.#session;
    } catch (error) {
      this.#context.note({ k: "remark", text: `open: ${describe(error)}` });
      return undefined;
    }
  }

  /** @param {Cluster | Session} source */
  async #once(source) {
    const name = this.#random.pick(this.#context.locks);
    const how = this.#random.pick(WAYS);
    const op = { id: ++ids, lock: name };
    const mutex = new leasehold.Mutex(source, name);
    if (how === "with") await this.#withLock(mutex, op);
    else if (how === "close" && this.#kind !== "shared") await this.#lockAndClose(mutex, op);
    else await this.#lockAndRelease(mutex, op, how);
  }

  /** @param {Mutex} mutex @param {Op} op @param {string} how */
  async #lockAndRelease(mutex, op, how) {
    const lock = await this.#acquire(mutex, op, how);
    if (lock === undefined) return;
    await this.#use(lock, op);
    this.#claim(lock, op);
    this.#note("invoke", "release", op);
    const released = lock.release().then(
      () => this.#note("ok", "release", op),
      (error) => this.#note("fail", "release", op, { err: describe(error) }),
    );
    // Now and then the next lock is asked for while this release is still on its way.
    if (this.#random.chance(0.8)) await released;
  }

  /** @param {Mutex} mutex @param {Op} op */
  async #withLock(mutex, op) {
    this.#note("invoke", "acquire", op, { owner: this.#owner });
    let granted = false;
    try {
      await mutex.withLock(async (lock) => {
        granted = true;
        this.#granted(lock, op, "acquire");
        await this.#use(lock, op);
        this.#claim(lock, op);
        this.#note("invoke", "release", op);
      });
      this.#note("ok", "release", op);
    } catch (error) {
      this.#note("fail", granted ? "release" : "acquire", op, { err: describe(error) });
    }
  }

  /** Ends the session with the hold, and perhaps another wait, still open. @param {Mutex} mutex @param {Op} op */
  async #lockAndClose(mutex, op) {
    const lock = await this.#acquire(mutex, op, "timeout");
    if (lock !== undefined) await this.#use(lock, op);
    const second = { id: ++ids, lock: this.#random.pick(this.#context.locks) };
    const waiting = this.#random.chance(0.5)
      ? this.#acquire(new leasehold.Mutex(this.#live(), second.lock), second, "lock")
      : undefined;
    if (this.#random.chance(0.5)) await delay(this.#random.between(0, 20));
    if (lock !== undefined) this.#claim(lock, op);
    await this.#endSession({ drainMs: 0 });
    await waiting;
  }

  /** @param {{ drainMs?: number }} options */
  async #endSession(options) {
    const session = this.#session;
    if (session === undefined) return;
    const op = { id: ++ids, lock: "" };
    this.#note("invoke", "close", op);
    await session.close(options);
    this.#note("ok", "close", op);
    this.#session = undefined;
  }

  #live() {
    if (this.#session === undefined) throw new Error("no session");
    return this.#session;
  }

  /** @param {Mutex} mutex @param {Op} op @param {string} how @returns {Promise<Lock | undefined>} */
  async #acquire(mutex, op, how) {
    const f = how === "try" ? "tryAcquire" : "acquire";
    this.#note("invoke", f, op, { owner: this.#owner });
    try {
      const lock = await this.#ask(mutex, how);
      if (lock === undefined) this.#note("fail", f, op, { err: "busy" });
      else this.#granted(lock, op, f);
      return lock;
    } catch (error) {
      this.#note("fail", f, op, { err: describe(error) });
      return undefined;
    }
  }

  /** @param {Mutex} mutex @param {string} how */
  async #ask(mutex, how) {
    const random = this.#random;
    if (how === "try") return mutex.tryLock({ timeoutMs: random.between(500, 3000) });
    // Often so soon that the place is still being asked for.
    const soon = random.chance(0.5);
    if (how === "timeout") return mutex.lock({ timeoutMs: random.between(1, soon ? 4 : 1500) });
    if (how !== "abort") return mutex.lock();
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), random.between(0, soon ? 3 : 300));
    return mutex.lock({ signal: controller.signal }).finally(() => clearTimeout(timer));
  }

  /** @param {Lock} lock @param {Op} op @param {string} f */
  #granted(lock, op, f) {
    // The time comes first: a process stopped between the two must not seem to have claimed later than it did.
    const t = now();
    this.#note("ok", f, op, { t, held: lock.held, token: lock.fence, key: lock.key });
    const lost = () => {
      const { code, loss } = lock.signal.reason;
      if (code !== "LOCK_RELEASED") this.#context.note({ k: "lost", ...op, token: lock.fence, reason: loss });
    };
    if (lock.signal.aborted) lost();
    else lock.signal.addEventListener("abort", lost, { once: true });
  }

  /** A few guarded increments, each on a claim made right before it. @param {Lock} lock @param {Op} op */
  async #use(lock, op) {
    const random = this.#random;
    for (let left = random.between(0, 3); left > 0; left--) {
      if (!this.#claim(lock, op) && random.chance(0.5)) return;
      if (!(await this.#increment(lock, op, left))) return;
      await delay(random.between(0, 15));
    }
  }

  /** Long enough that a fault finds a holder between its read and its write, and that a holder watches its key. @param {Lock} lock @param {Op} op */
  async #sit(lock, op) {
    for (let left = this.#random.between(2, 15); left > 0 && this.#claim(lock, op); left--) await delay(100);
  }

  /** @param {Lock} lock @param {Op} op @param {number} nth @returns {Promise<boolean>} false = leave it */
  async #increment(lock, op, nth) {
    const { register, p } = this.#context;
    const write = `${p}#${op.id}/${nth}`;
    const before = await register.read(op.lock).catch(() => undefined);
    if (before === undefined) return false;
    this.#note("ok", "read", op, { rev: before.rev, seq: before.seq });
    if (this.#random.chance(0.04)) await this.#sit(lock, op);
    this.#claim(lock, op);
    // Also after a claim that said no: the guard must refuse it by itself.
    const seq = before.seq + 1;
    this.#note("invoke", "write", op, { write });
    try {
      const { accepted, rev } = await register.write(lock, { seq, write });
      this.#note(accepted ? "ok" : "fail", "write", op, { write, seq, ...(accepted && { rev }) });
      return accepted;
    } catch (error) {
      // It may still be applied: no other write may follow it under this hold.
      this.#note("info", "write", op, { write, seq, err: describe(error) });
      return false;
    }
  }

  /** @param {Lock} lock @param {Op} op */
  #claim(lock, op) {
    const t = now();
    const held = lock.held;
    this.#context.note({ t, k: "claim", ...op, token: lock.fence, held });
    return held;
  }

  /** @param {string} k @param {string} f @param {Op} op @param {object} [more] */
  #note(k, f, op, more = {}) {
    this.#context.note({ k, f, ...op, ...more });
  }
}

/** @typedef {{ id: number, lock: string }} Op */

/** @param {any} error */
const describe = (error) => error?.code ?? error?.name ?? String(error);
