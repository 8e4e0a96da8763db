import type { Lock, OnceOptions, Session } from "../../../src/index.js";
import type { Context } from "./context.js";
import type { Asked } from "./history.js";
import { describe, HoldLog, type Op } from "./hold-log.js";
import { seeded, type Random } from "./random.js";

/** How many strings of a name are asked for: few, so that calls meet. */
const SLOTS = 4;
/** The time for which marks are kept: they expire while the run goes on. */
export const KEEP_MS = 3000;
/** Of a value that is shared, and for which it may be stale. */
const TTL_MS = 2000;
const STALE_MS = 2000;
/** A work that takes so many TTLs outlives the lease of a process that has stopped. */
const LONG_TTLS = 1.5;

interface Call extends Pick<Asked, "id" | "lock" | "slot" | "rerun"> {
  readonly since: bigint;
}

/** One caller of `once` and `share`: it asks for results, runs what is his to run, and is told what others have run. */
export class ResultLane {
  readonly #context: Context;
  readonly #random: Random;
  readonly #owner: string;
  readonly #log: HoldLog;
  #session: Session | undefined;

  constructor(context: Context, { n, seed }: { readonly n: number; readonly seed: string }) {
    this.#context = context;
    this.#random = seeded(seed);
    this.#owner = `${context.p}/${n}`;
    this.#log = new HoldLog(this.#owner, { ...context, wanted: false });
  }

  async run(): Promise<void> {
    const { finishing, time } = this.#context;
    while (!finishing()) {
      await this.#ask();
      await time.delay(this.#random.between(0, 150));
    }
    await this.close();
  }

  /** A value may still be computed in the background. */
  async close(): Promise<void> {
    const none = [{ id: this.#context.nextId(), lock: "" }];
    this.#log.note("invoke", "close", none, this.#session && { owner: this.#owner });
    await this.#session?.close({ drainMs: 0 });
    this.#session = undefined;
  }

  /** The cluster, or a session of its own, which it opens again when that is over. */
  async #source() {
    const { cluster, leasehold, ttlSeconds, releaseDelayMs } = this.#context;
    if (this.#session?.signal.aborted) this.#session = undefined;
    if (this.#random.chance(0.5)) return cluster;
    const options = { ttlSeconds, releaseDelayMs, owner: this.#owner, timeoutMs: 3000 };
    return (this.#session ??= await leasehold.Session.open(cluster, options));
  }

  async #ask(): Promise<void> {
    const { locks, nextId, note, time } = this.#context;
    const random = this.#random;
    const id = nextId();
    const since = time.now();
    const lock = random.pick(locks);
    if (random.chance(0.25)) return this.#share(id, lock, since);
    const slot = `s${random.between(0, SLOTS - 1)}`;
    const rerun = random.pick(["never", "never", "if_lost", "if_failed"] as const);
    const ifRunning = random.pick([undefined, "wait", "wait", "wait", "skip", "fail"] as const);
    const fingerprint = random.pick([undefined, undefined, "a", "a", "b"] as const);
    const limits = random.chance(0.2) ? { timeoutMs: random.between(10, 2000) } : {};
    const options: OnceOptions = { rerun, ifRunning, fingerprint, keep: { ms: KEEP_MS }, ...limits };
    const ask = { id, lock, slot };
    note({ k: "asked", ...ask, rerun, ...(fingerprint && { fingerprint }) });
    try {
      const { leasehold } = this.#context;
      const work = (held: Lock): Promise<unknown> => this.#work(held, { ...ask, rerun, since });
      const reply = await leasehold.once(await this.#source(), lock, slot, work, {
        ...options,
        result: "keep",
      });
      const value = reply.status === "done" ? (reply.result as { run?: string } | undefined)?.run : undefined;
      note({ k: "answered", ...ask, status: reply.status, ...(value !== undefined && { value }) });
    } catch (error) {
      note({ k: "answered", ...ask, status: describe(error) });
    }
  }

  async #share(id: number, lock: string, since: bigint): Promise<void> {
    const { leasehold, note } = this.#context;
    const [staleMs, slot] = this.#random.pick([
      [0, "fresh"],
      [STALE_MS, "stale"],
    ] as const);
    const ask = { id, lock: `${lock}/${slot}`, slot: "*" };
    note({ k: "asked", ...ask, rerun: "if_failed" });
    try {
      const compute = (held: Lock): Promise<{ readonly run: string }> =>
        this.#work(held, { ...ask, rerun: "if_failed", since });
      const source = await this.#source();
      const { run } = await leasehold.share(source, ask.lock, compute, { ttlMs: TTL_MS, staleMs });
      note({ k: "answered", ...ask, status: "done", value: run });
    } catch (error) {
      note({ k: "answered", ...ask, status: describe(error) });
    }
  }

  async #work(
    lock: Lock,
    { id: ask, lock: name, slot, rerun, since }: Call,
  ): Promise<{ readonly run: string }> {
    const { nextId, note, p, time, ttlSeconds } = this.#context;
    const random = this.#random;
    const op: Op = { id: nextId(), lock: lock.name };
    const token = lock.fence;
    const work = { id: op.id, lock: name, slot, token, ask };
    note({ k: "worked", ...work, rerun });
    // It took the lock at any time since its call.
    this.#log.note("invoke", "acquire", [op], { given: true, t: since });
    const grip = { hold: lock, places: [{ name: lock.name, key: lock.key, token }], shared: false };
    lock.signal.addEventListener("abort", () => this.#ended(lock, op));
    this.#log.granted(grip, [op], "acquire");
    const long = random.chance(0.05) ? 1000 * LONG_TTLS * ttlSeconds : random.between(0, 300);
    for (const ms of [long / 2, long / 2]) {
      this.#log.claim(grip, [op]);
      await time.delay(ms);
    }
    this.#log.claim(grip, [op]);
    const fails = random.chance(0.15);
    note({ k: "settled-work", ...work, fails });
    if (fails) throw new Error("the work fails");
    return { run: `${p}#${op.id}` };
  }

  /** The call releases its lock after the work, and tells nobody what comes of that. */
  #ended({ signal }: Lock, op: Op): void {
    if ((signal.reason as { code?: string }).code !== "LOCK_RELEASED") return;
    this.#log.note("invoke", "release", [op]);
    this.#log.note("info", "release", [op]);
  }
}
