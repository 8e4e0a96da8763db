import { setTimeout as delay } from "node:timers/promises";
import type { Cluster, Lock, Mutex, Session } from "../../../src/index.js";
import { describe, HoldLog, type Acquire, type Op } from "./hold-log.js";
import type { load } from "./leasehold.js";
import { seeded, type Random } from "./random.js";
import type { Beats } from "./beats.js";
import type { Register } from "./register.js";

export interface Context {
  readonly p: string;
  readonly leasehold: Awaited<ReturnType<typeof load>>;
  readonly cluster: Cluster;
  readonly register: Register;
  readonly ttlSeconds: number;
  readonly locks: readonly string[];
  /** How often a holder keeps the lock until it loses it, or for more than a TTL. */
  readonly camp: number;
  readonly finishing: () => boolean;
  readonly note: (step: object) => void;
  /** Where there is one, lanes take and give back their locks in step. */
  readonly beats: Beats | undefined;
}

/** own, other: sessions of its own; shared: the cluster's standing session, together with another lane. */
export type Kind = "own" | "other" | "shared";

/** How a lock may be taken and given back; those named twice come twice as often. */
const WAYS = ["lock", "lock", "timeout", "abort", "abort", "try", "with", "with", "close"] as const;
type Way = (typeof WAYS)[number];

let ids = 0;

/** One line of work in a process: takes a lock in a random way, uses it, gives it back, and so on. */
export class Lane {
  #session: Session | undefined;
  readonly #context: Context;
  readonly #random: Random;
  readonly #kind: Kind;
  readonly #owner: string;
  readonly #log: HoldLog;

  constructor(context: Context, { n, kind, seed }: { n: number; kind: Kind; seed: string }) {
    this.#context = context;
    this.#random = seeded(seed);
    this.#kind = kind;
    this.#owner = kind === "shared" ? `${context.p}/shared` : `${context.p}/${n}`;
    this.#log = new HoldLog(this.#owner, (step) => context.note(step));
  }

  async run(): Promise<void> {
    while (!this.#context.finishing()) {
      const source = await this.#source();
      if (source !== undefined) await this.#once(source);
      await delay(this.#random.between(0, 40));
    }
  }

  async close(): Promise<void> {
    await this.#endSession({});
  }

  /** Its own session, opened anew after a loss, or the cluster's standing one. */
  async #source(): Promise<Cluster | Session | undefined> {
    const { cluster, leasehold, note, ttlSeconds } = this.#context;
    if (this.#kind === "shared") return cluster;
    if (this.#session?.state === "live" || this.#session?.state === "jeopardy") return this.#session;
    try {
      const options = { ttlSeconds, owner: this.#owner, timeoutMs: 3000 };
      this.#session = await leasehold.Session.open(cluster, options);
      return this.#session;
    } catch (error) {
      note({ k: "remark", text: `open: ${describe(error)}` });
      return undefined;
    }
  }

  async #once(source: Cluster | Session): Promise<void> {
    await this.#context.beats?.next();
    const name = this.#random.pick(this.#context.locks);
    const way = this.#random.pick(WAYS);
    const op = { id: ++ids, lock: name };
    const mutex = new this.#context.leasehold.Mutex(source, name);
    if (way === "with") await this.#withLock(mutex, op);
    else if (way === "close" && this.#kind !== "shared") await this.#lockAndClose(mutex, op);
    else await this.#lockAndRelease(mutex, op, way);
  }

  async #lockAndRelease(mutex: Mutex, op: Op, way: Way): Promise<void> {
    const lock = await this.#acquire(mutex, op, way);
    if (lock === undefined) return;
    await this.#use(lock, op);
    await this.#context.beats?.next();
    this.#log.claim(lock, op);
    this.#log.note("invoke", "release", op);
    const released = lock.release().then(
      () => this.#log.note("ok", "release", op),
      (error: unknown) => this.#log.note("fail", "release", op, { err: describe(error) }),
    );
    // Now and then the next lock is asked for while this release is still on its way.
    if (this.#random.chance(0.8)) await released;
  }

  async #withLock(mutex: Mutex, op: Op): Promise<void> {
    this.#log.asked("acquire", op);
    let granted = false;
    try {
      await mutex.withLock(async (lock) => {
        granted = true;
        this.#log.granted(lock, op, "acquire");
        await this.#use(lock, op);
        this.#log.claim(lock, op);
        this.#log.note("invoke", "release", op);
      });
      this.#log.note("ok", "release", op);
    } catch (error) {
      this.#log.note("fail", granted ? "release" : "acquire", op, { err: describe(error) });
    }
  }

  /** Ends the session with the hold, and perhaps another wait, still open. */
  async #lockAndClose(mutex: Mutex, op: Op): Promise<void> {
    const { leasehold, locks } = this.#context;
    const lock = await this.#acquire(mutex, op, "timeout");
    if (lock !== undefined) await this.#use(lock, op);
    const second = { id: ++ids, lock: this.#random.pick(locks) };
    const session = this.#session;
    const waiting =
      session !== undefined && this.#random.chance(0.5)
        ? this.#acquire(new leasehold.Mutex(session, second.lock), second, "lock")
        : undefined;
    if (this.#random.chance(0.5)) await delay(this.#random.between(0, 20));
    if (lock !== undefined) this.#log.claim(lock, op);
    await this.#endSession({ drainMs: 0 });
    await waiting;
  }

  async #endSession(options: { drainMs?: number }): Promise<void> {
    const session = this.#session;
    if (session === undefined) return;
    const op = { id: ++ids, lock: "" };
    this.#log.note("invoke", "close", op);
    await session.close(options);
    this.#log.note("ok", "close", op);
    this.#session = undefined;
  }

  async #acquire(mutex: Mutex, op: Op, way: Way): Promise<Lock | undefined> {
    const f: Acquire = way === "try" ? "tryAcquire" : "acquire";
    this.#log.asked(f, op);
    try {
      const lock =
        way === "try"
          ? await mutex.tryLock({ timeoutMs: this.#random.between(500, 3000) })
          : await this.#lock(mutex, op, way);
      if (lock === undefined) this.#log.note("fail", f, op, { err: "busy" });
      else this.#log.granted(lock, op, f);
      return lock;
    } catch (error) {
      this.#log.failed(error, op, f);
      return undefined;
    }
  }

  async #lock(mutex: Mutex, op: Op, way: Way): Promise<Lock> {
    const random = this.#random;
    // Often so soon that the place is still being asked for.
    const soon = random.chance(0.5);
    if (way === "timeout") return mutex.lock({ timeoutMs: random.between(1, soon ? 4 : 1500) });
    if (way !== "abort") return mutex.lock();
    const controller = new AbortController();
    const abort = () => this.#log.aborted(op, () => controller.abort());
    const timer = setTimeout(abort, random.between(0, soon ? 3 : 300));
    return mutex.lock({ signal: controller.signal }).finally(() => clearTimeout(timer));
  }

  /** A few guarded increments, each on a claim made right before it. */
  async #use(lock: Lock, op: Op): Promise<void> {
    const random = this.#random;
    if (random.chance(this.#context.camp)) return this.#camp(lock, op);
    for (let left = random.between(0, 3); left > 0; left--) {
      if (!this.#log.claim(lock, op) && random.chance(0.5)) return;
      if (!(await this.#increment(lock, op, left))) return;
      await delay(random.between(0, 15));
    }
  }

  /** Claims again and again without asking etcd: who is not told of a loss goes on claiming. */
  async #camp(lock: Lock, op: Op): Promise<void> {
    const { finishing, ttlSeconds } = this.#context;
    const until = performance.now() + ttlSeconds * this.#random.between(1000, 4000);
    while (this.#log.claim(lock, op) && performance.now() < until && !finishing()) await delay(10);
  }

  /** Long enough that a fault finds a holder between its read and its write, and that a holder watches its key. */
  async #sit(lock: Lock, op: Op): Promise<void> {
    for (let left = this.#random.between(2, 15); left > 0 && this.#log.claim(lock, op); left--)
      await delay(100);
  }

  /** false = leave it */
  async #increment(lock: Lock, op: Op, nth: number): Promise<boolean> {
    const { register, p } = this.#context;
    const write = `${p}#${op.id}/${nth}`;
    const before = await register.read(op.lock).catch(() => undefined);
    if (before === undefined) return false;
    this.#log.note("ok", "read", op, { rev: before.rev, seq: before.seq });
    if (this.#random.chance(0.04)) await this.#sit(lock, op);
    this.#log.claim(lock, op);
    // Also after a claim that said no: the guard must refuse it by itself.
    const seq = before.seq + 1;
    this.#log.note("invoke", "write", op, { write });
    try {
      const { accepted, rev } = await register.write(lock, { seq, write });
      this.#log.note(accepted ? "ok" : "fail", "write", op, { write, seq, ...(accepted && { rev }) });
      return accepted;
    } catch (error) {
      // It may still be applied: no other write may follow it under this hold.
      this.#log.note("info", "write", op, { write, seq, err: describe(error) });
      return false;
    }
  }
}
