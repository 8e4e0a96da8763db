import type { Cluster, Leadership, Session } from "../../../src/index.js";
import { failureOf, HoldLog, type Acquire, type Op } from "./hold-log.js";
import { seeded, type Random } from "./random.js";
import type { Context } from "./context.js";
import { subjectOf, type Grip, type Gripped, type LockKind, type Subject } from "./subject.js";
import { Writes } from "./writes.js";

/**
 * own, other: the lane has its own sessions; shared: it uses the cluster's standing session together with another lane.
 */
export type Kind = "own" | "other" | "shared";

/** How a lock may be acquired and released; a way that is listed twice is chosen twice as often. */
const WAYS = ["lock", "lock", "timeout", "abort", "abort", "try", "with", "with", "close"] as const;
type Way = (typeof WAYS)[number];

/** One line of work in a process: acquires a lock in a random way, uses it, releases it, and repeats. */
export class Lane {
  #session: Session | undefined;
  readonly #context: Context;
  readonly #random: Random;
  readonly #kind: Kind;
  readonly #owner: string;
  readonly #of: LockKind;
  readonly #log: HoldLog;
  readonly #writes: Writes;
  /** Writers that have become readers. */
  readonly #readers = new WeakSet<Grip>();

  constructor(
    context: Context,
    { n, kind, of, seed }: { n: number; kind: Kind; of: LockKind; seed: string },
  ) {
    this.#context = context;
    this.#of = of;
    this.#random = seeded(seed);
    this.#kind = kind;
    this.#owner = kind === "shared" ? `${context.p}/shared` : `${context.p}/${n}`;
    this.#log = new HoldLog(this.#owner, context);
    this.#writes = new Writes(context, this.#log);
  }

  async run(): Promise<void> {
    while (!this.#context.finishing()) {
      const source = await this.#source();
      if (source !== undefined) await this.#once(source);
      await this.#context.time.delay(this.#random.between(0, 40));
    }
  }

  async close(): Promise<void> {
    await this.#endSession({});
  }

  /** Its own session, reopened after a loss, or the cluster's standing one. */
  async #source(): Promise<Cluster | Session | undefined> {
    const { cluster, leasehold, ttlSeconds, releaseDelayMs } = this.#context;
    if (this.#kind === "shared") return cluster;
    if (this.#session?.state === "live" || this.#session?.state === "jeopardy") return this.#session;
    const none = [{ id: this.#context.nextId(), lock: "" }];
    this.#log.note("invoke", "open", none);
    try {
      const options = { ttlSeconds, releaseDelayMs, owner: this.#owner, timeoutMs: 3000 };
      this.#session = await leasehold.Session.open(cluster, options);
      this.#log.note("ok", "open", none);
      return this.#session;
    } catch (error) {
      this.#log.note("fail", "open", none, failureOf(error));
      return undefined;
    }
  }

  async #once(source: Cluster | Session): Promise<void> {
    await this.#context.beats?.next();
    const drawn = this.#random.pick(WAYS);
    // A try for a permit that comes too late is in the queue for a moment, whatever its length is.
    const way = drawn === "try" && this.#context.maxWaiting !== undefined ? "lock" : drawn;
    const subject = this.#subject(source);
    if (this.#context.sticky && this.#random.chance(0.6)) return this.#again(subject);
    const ops = this.#opsOf(subject);
    const inside = way === "with" || (way === "lock" && subject.inside === true);
    if (inside && subject.during && this.#context.maxWaiting === undefined) await this.#during(subject, ops);
    else if (way === "close" && this.#kind !== "shared" && subject.owner === undefined)
      await this.#lockAndClose(subject, ops);
    else await this.#lockAndRelease(subject, ops, way);
  }

  /** The same lock several times, without a request between: only such a one is kept. */
  async #again(subject: Subject): Promise<void> {
    for (let left = this.#random.between(2, 12); left > 0 && !this.#context.finishing(); left--) {
      const way = this.#random.pick(["lock", "lock", "timeout", "abort", "try"] as const);
      await this.#lockAndRelease(subject, this.#opsOf(subject), way, true);
      if (this.#random.chance(0.7)) await this.#context.time.delay(this.#random.between(0, 30));
    }
  }

  #subject(source: Cluster | Session): Subject {
    const { p, leasehold, cluster, locks, time, ttlSeconds, releaseDelayMs, sticky } = this.#context;
    const random = this.#random;
    const session = { ttlSeconds, releaseDelayMs, owner: this.#owner };
    const more = { cluster, session, sticky, shared: `${p}/shared` };
    return subjectOf(this.#of, {
      leasehold,
      source,
      locks,
      random,
      time,
      value: this.#says("campaigns"),
      ...more,
    });
  }

  #opsOf({ names }: Subject): readonly Op[] {
    return names.map((lock) => ({ id: this.#context.nextId(), lock }));
  }

  /** A candidate's value, which names its owner and is unique. */
  #says(says: string): string {
    return JSON.stringify({ owner: this.#owner, says, n: this.#context.nextId() }).padEnd(
      this.#context.valueBytes,
    );
  }

  /** `brief`: the work sends nothing. */
  async #lockAndRelease(subject: Subject, ops: readonly Op[], way: Way, brief = false): Promise<void> {
    const grip = await this.#acquire(subject, ops, way);
    if (grip === undefined) return;
    if (brief) await this.#context.time.delay(this.#random.between(0, 10));
    else await this.#use(grip, ops);
    await this.#context.beats?.next();
    this.#log.claim(grip, ops);
    this.#log.note("invoke", "release", ops);
    const released = grip.hold.release().then(
      () => this.#log.note("ok", "release", ops),
      (error: unknown) => this.#log.note("fail", "release", ops, failureOf(error)),
    );
    // Sometimes the next lock is requested while this release is still in progress.
    if (this.#random.chance(0.8)) await released;
  }

  async #during(subject: Subject, ops: readonly Op[]): Promise<void> {
    this.#log.asked("acquire", ops, subject);
    let granted = false;
    try {
      await subject.during?.(async (grip) => {
        granted = true;
        this.#log.granted(grip, ops, "acquire");
        await this.#use(grip, ops);
        this.#log.claim(grip, ops);
        this.#log.note("invoke", "release", ops);
      });
      this.#log.note("ok", "release", ops);
    } catch (error) {
      this.#log.note("fail", granted ? "release" : "acquire", ops, failureOf(error));
    }
  }

  /** Closes the session while the hold, and possibly another wait, is still open. */
  async #lockAndClose(subject: Subject, ops: readonly Op[]): Promise<void> {
    const grip = await this.#acquire(subject, ops, "timeout");
    if (grip !== undefined) await this.#use(grip, ops);
    const waiting =
      this.#session !== undefined && this.#random.chance(0.5) ? this.#waitAgain(this.#session) : undefined;
    if (this.#random.chance(0.5)) await this.#context.time.delay(this.#random.between(0, 20));
    if (grip !== undefined) this.#log.claim(grip, ops);
    await this.#endSession({ drainMs: 0 });
    await waiting;
  }

  #waitAgain(session: Session): Promise<unknown> {
    const second = this.#subject(session);
    return this.#acquire(second, this.#opsOf(second), "lock");
  }

  async #endSession(options: { drainMs?: number }): Promise<void> {
    const session = this.#session;
    if (session === undefined) return;
    const none = [{ id: this.#context.nextId(), lock: "" }];
    this.#log.note("invoke", "close", none);
    await session.close(options);
    this.#log.note("ok", "close", none);
    this.#session = undefined;
  }

  async #acquire(subject: Subject, ops: readonly Op[], way: Way): Promise<Grip | undefined> {
    const f: Acquire = way === "try" && subject.tryLock ? "tryAcquire" : "acquire";
    this.#log.asked(f, ops, subject);
    try {
      const grip =
        way === "try" && subject.tryLock
          ? await subject.tryLock({ timeoutMs: this.#random.between(500, 3000) })
          : await this.#lock(subject, ops, way);
      if (grip === undefined) this.#log.note("fail", f, ops, { err: "busy" });
      else this.#log.granted(grip, ops, f);
      return grip;
    } catch (error) {
      this.#log.failed(error, ops, f);
      return undefined;
    }
  }

  async #lock(subject: Subject, ops: readonly Op[], way: Way): Promise<Grip> {
    const random = this.#random;
    const { maxWaiting, newest } = this.#context;
    const limit = maxWaiting === undefined ? undefined : { maxWaiting };
    const bound = newest && random.chance(0.8) ? { supersede: true } : limit;
    // Half of the time so early that the join is still in progress.
    const soon = random.chance(0.5);
    if (way === "timeout") return subject.lock({ ...bound, timeoutMs: random.between(1, soon ? 4 : 1500) });
    if (way !== "abort") return subject.lock(bound);
    const controller = new AbortController();
    const abort = () => this.#log.aborted(ops, () => controller.abort());
    const cancel = this.#context.time.after(random.between(0, soon ? 3 : 300), abort);
    return subject.lock({ ...bound, signal: controller.signal }).finally(cancel);
  }

  /** A few guarded increments or proclamations, each on a claim made right before it. */
  async #use(grip: Grip, ops: readonly Op[]): Promise<void> {
    const random = this.#random;
    if (grip.downgrade && random.chance(0.2)) await this.#downgrade(grip, ops);
    if (random.chance(this.#context.camp)) return this.#camp(grip, ops);
    for (let left = random.between(0, 3); left > 0; left--) {
      if (grip.enter && random.chance(0.5)) await this.#enter(grip, ops);
      if (!this.#log.claim(grip, ops) && random.chance(0.5)) return;
      if (!(await this.#act(grip, ops, left))) return;
      if (grip.downgrade && random.chance(0.3)) await this.#downgrade(grip, ops);
      await this.#context.time.delay(random.between(0, 15));
    }
  }

  /** A writer whose writes have ended becomes a reader. */
  async #downgrade(grip: Grip, ops: readonly Op[]): Promise<void> {
    this.#readers.add(grip);
    this.#log.note("invoke", "downgrade", ops);
    try {
      await grip.downgrade?.();
      this.#log.note("ok", "downgrade", ops);
    } catch (error) {
      this.#log.note("fail", "downgrade", ops, failureOf(error));
    }
  }

  /** Claims repeatedly without a request to etcd: a holder that is not notified of a loss keeps claiming. */
  async #camp(grip: Grip, ops: readonly Op[]): Promise<void> {
    const { finishing, ttlSeconds, time } = this.#context;
    const until = time.now() + BigInt(ttlSeconds * this.#random.between(1000, 4000)) * 1_000_000n;
    while (this.#log.claim(grip, ops) && time.now() < until && !finishing()) {
      await time.delay(10);
      await this.#enter(grip, ops);
    }
  }

  /** Calls for the lock again, without a look at `held`. */
  async #enter({ hold, places, enter }: Grip, ops: readonly Op[]): Promise<void> {
    if (!enter || hold.signal.aborted) return;
    const entered = (again: Pick<Grip["hold"], "held">): void =>
      void this.#log.claim({ hold, places }, ops, again);
    // It may be lost meanwhile, which its own end tells.
    await enter(entered).catch(() => undefined);
  }

  /**
   * Holds long enough that a fault can hit a holder between its read and its write, and that a holder watches its key.
   */
  async #sit(grip: Grip, ops: readonly Op[]): Promise<void> {
    for (let left = this.#random.between(2, 15); left > 0 && this.#log.claim(grip, ops); left--)
      await this.#context.time.delay(100);
  }

  /** false = stop using the hold */
  async #act(grip: Grip, ops: readonly Op[], nth: number): Promise<boolean> {
    const n = this.#random.between(0, ops.length - 1);
    const op = ops[n] as Op;
    if (grip.leadership && this.#random.chance(0.5)) return this.#proclaim(grip.leadership, op);
    const before = await this.#context.register.read(op.lock).catch(() => undefined);
    if (before === undefined) return false;
    this.#log.note("ok", "read", [op], { rev: before.rev, seq: before.seq });
    if (this.#random.chance(0.04)) await this.#sit(grip, ops);
    this.#log.claim(grip, ops);
    // Also after a claim that was false: the guard alone must refuse the write.
    return (
      grip.shared ||
      this.#readers.has(grip) ||
      this.#writes.write(grip.places[n] as Gripped, op, { seq: before.seq + 1, nth })
    );
  }

  async #proclaim(leadership: Leadership, op: Op): Promise<boolean> {
    const value = this.#says("proclaims");
    this.#log.note("invoke", "proclaim", [op], { value });
    try {
      await leadership.proclaim(value);
      this.#log.note("ok", "proclaim", [op], { value });
      return true;
    } catch (error) {
      this.#log.note("fail", "proclaim", [op], { value, ...failureOf(error) });
      return false;
    }
  }
}
