import type { Lock, Shard, Shards } from "../../../src/index.js";
import type { Context } from "./context.js";
import { describe, failureOf, HoldLog, type Op } from "./hold-log.js";
import { seeded, type Random } from "./random.js";
import type { Grip } from "./subject.js";
import { Writes } from "./writes.js";

/** The share of works that have nothing to do any more soon after they have begun. */
const RETURNS = 0.1;
/** So often, in a while, a process looks whether the run is about to end. */
const LOOK_MS = 250;
/** The longest stay of a member, and the longest absence. */
const STAY_MS = 15_000;
const AWAY_MS = 2000;
/** Longer than until the last process has noticed that the run is about to end. */
const SETTLED_MS = 10_000;

/** A shard that the member owns, from the first run of its work until its lock has ended. */
interface Owned {
  readonly op: Op;
  readonly grip: Grip;
  running: boolean;
  /** Its work was told that the shard moves. */
  moved: boolean;
  /** A write may still be applied: none may follow it. */
  silent: boolean;
}

/** A member of a group of shards: joins, works on what it owns, leaves, and comes back. */
export class ShardLane {
  readonly #context: Context;
  readonly #random: Random;
  readonly #group: string;
  readonly #owner: string;
  readonly #log: HoldLog;
  readonly #writes: Writes;
  readonly #owned = new WeakMap<Lock, Owned>();
  /** How this member works, as long as its process lives. */
  readonly #habits: { readonly drainMs: number; readonly slowMs: number; readonly fails: number };
  readonly #member: {
    readonly capacity: number;
    readonly zone: string | undefined;
    readonly settleMs: number;
  };
  #shards: Shards | undefined;
  /** Aborts when the member leaves. */
  #leaving = AbortSignal.abort();
  #leavingSince = 0n;

  constructor(context: Context, { n, seed }: { readonly n: number; readonly seed: string }) {
    this.#context = context;
    const random = (this.#random = seeded(seed));
    this.#group = context.locks[n % context.locks.length] ?? "";
    this.#owner = `${context.p}/${n}`;
    this.#log = new HoldLog(this.#owner, { ...context, wanted: false });
    this.#writes = new Writes(context, this.#log);
    const drainMs = random.pick([50, 200, 1000]);
    const slowMs = random.pick([0, 30, 300, 3 * drainMs]);
    this.#habits = { drainMs, slowMs, fails: random.pick([0, 0, 0.05]) };
    const capacity = random.pick([1, 1, 1, 1, 1, 1, 0, 2, 3]);
    const zone = random.pick([undefined, undefined, "a", "b"]);
    this.#member = { capacity, zone, settleMs: random.pick([0, 20, 500]) };
  }

  async run(): Promise<void> {
    const { finishing, time, calmMs } = this.#context;
    const random = this.#random;
    while (!finishing()) {
      if (await this.#join()) {
        await this.#stay(random.between(200, STAY_MS));
        if (finishing()) break;
        await this.#leave();
      }
      if (!finishing()) await time.delay(random.between(0, AWAY_MS));
    }
    if (!this.#shards && random.chance(0.7)) await this.#join();
    await time.delay(calmMs);
    if (this.#shards && !this.#leaving.aborted) this.#settled(this.#shards);
    // The others do so at about the same time.
    await time.delay(SETTLED_MS);
    await this.#leave();
  }

  /** It has left. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  async #stay(ms: number): Promise<void> {
    const { finishing, time } = this.#context;
    for (let left = ms; left > 0 && !finishing(); left -= LOOK_MS) await time.delay(Math.min(left, LOOK_MS));
  }

  /** Sometimes, its user aborts before it has joined, or before it would leave. Returns whether it has joined. */
  async #join(): Promise<boolean> {
    const { leasehold, cluster, ttlSeconds, releaseDelayMs, p, shards: count, time } = this.#context;
    const random = this.#random;
    const none = [{ id: this.#context.nextId(), lock: "" }];
    const stop = new AbortController();
    this.#leaving = stop.signal;
    const soon = random.chance(0.5) ? 5 : 3000;
    const abort = (): void => {
      // It may come when the member leaves already, or has come back.
      if (this.#leaving === stop.signal) this.#leavingSince = time.now();
      stop.abort();
    };
    if (random.chance(0.2)) time.after(random.between(0, soon), abort);
    this.#log.note("invoke", "open", none);
    const options = {
      ...{ ttlSeconds, releaseDelayMs, owner: this.#owner, ...this.#member, count, signal: stop.signal },
      drainMs: this.#habits.drainMs,
      value: p,
      id: random.chance(0.7) ? this.#owner.replace(/\.\d+/, "") : undefined,
      onRetry: (error: unknown, _: number, shard?: number) =>
        this.#told("retried", { shard, err: describe(error) }),
      onFailed: (shard: number) => this.#told("failed", { shard }),
      onStuck: (shard: number, forMs: number) => this.#told("stuck", { shard, forMs }),
    };
    try {
      this.#shards = await leasehold.shards(cluster, this.#group, options, (shard) => this.#work(shard));
      this.#view(this.#shards).catch((error: unknown) => this.#viewFailed(error));
      this.#log.note("ok", "open", none);
    } catch (error) {
      this.#log.note("fail", "open", none, failureOf(error));
    }
    return this.#shards !== undefined;
  }

  #told(what: string, more: object): void {
    this.#context.note({ k: "told", what, lock: this.#group, ...more });
  }

  async #leave(): Promise<void> {
    const shards = this.#shards;
    if (!shards) return;
    this.#shards = undefined;
    if (!this.#leaving.aborted) this.#leavingSince = this.#context.time.now();
    this.#leaving = AbortSignal.abort();
    const none = [{ id: this.#context.nextId(), lock: "" }];
    this.#log.note("invoke", "close", none);
    await shards.close();
    this.#log.note("ok", "close", none);
  }

  /** A timer may run a millisecond early, on a clock that drifts. */
  get #drained(): boolean {
    const sinceMs = Number(this.#context.time.now() - this.#leavingSince) / 1e6;
    return sinceMs >= 0.98 * this.#habits.drainMs - 2;
  }

  /** Records some of what its users see. */
  async #view(shards: Shards): Promise<void> {
    for await (const { revision: rev, owners } of shards.owners()) {
      if (!this.#random.chance(0.3)) continue;
      const fences = owners.map((owner) => String(owner?.fence ?? "")).join();
      this.#context.note({ k: "viewed", lock: this.#group, rev, fences });
    }
  }

  /** It may go on until its cluster closes. */
  #viewFailed(error: unknown): void {
    if (describe(error) === "SESSION_CLOSED") return;
    this.#context.note({ k: "crash", event: "owners", err: describe(error) });
  }

  /** What its users would see, when nothing has happened for long. */
  #settled(shards: Shards): void {
    const { count } = shards;
    const fences = Array.from({ length: count }, (_, id) => String(shards.owner(id)?.fence ?? ""));
    this.#context.note({ k: "settled", lock: this.#group, count, fences: fences.join() });
  }

  async #work(shard: Shard): Promise<void> {
    // Before anything else: what is noted of a lock takes time, in which its lease may end.
    const begun = { t: this.#context.time.now(), held: shard.lock.held };
    const owned = this.#ownedBy(shard);
    const { op } = owned;
    const token = shard.fence;
    owned.running = true;
    this.#context.note({ k: "run", ...op, token, owner: this.#owner, ...begun });
    try {
      await this.#use(shard, owned);
    } finally {
      owned.running = false;
      this.#context.note({ k: "ran", ...op, token });
    }
  }

  /** A lock is granted when its work runs first. */
  #ownedBy(shard: Shard): Owned {
    const { lock, name, fence: token } = shard;
    const known = this.#owned.get(lock);
    if (known) return known;
    const op = { id: this.#context.nextId(), lock: name };
    const place = { name, key: lock.key, token, guard: lock };
    const owned: Owned = {
      op,
      grip: { hold: lock, places: [place], shared: false },
      running: false,
      moved: false,
      silent: false,
    };
    this.#owned.set(lock, owned);
    this.#log.note("invoke", "acquire", [op], { given: true });
    lock.signal.addEventListener("abort", () => this.#ended(lock, owned));
    this.#log.granted(owned.grip, [op], "acquire");
    shard.signal.addEventListener("abort", () => this.#moved(shard, owned));
    if (shard.signal.aborted) this.#moved(shard, owned);
    return owned;
  }

  #moved({ signal, fence: token }: Shard, owned: Owned): void {
    if ((signal.reason as { code?: string }).code !== "SHARD_MOVED") return;
    owned.moved = true;
    this.#context.note({
      k: "moved",
      ...owned.op,
      token,
      ...(this.#leaving.aborted && { drained: this.#drained }),
    });
  }

  /** The group may release a lock only when its work was told so, and has settled. */
  #ended({ signal }: Lock, { op, moved, running }: Owned): void {
    if ((signal.reason as { code?: string }).code !== "LOCK_RELEASED" || !moved || running) return;
    this.#log.note("invoke", "release", [op]);
    this.#log.note("ok", "release", [op]);
  }

  async #use({ signal }: Shard, owned: Owned): Promise<void> {
    const { finishing, time } = this.#context;
    const { slowMs, fails } = this.#habits;
    const { grip, op } = owned;
    const random = this.#random;
    const returns = random.chance(RETURNS);
    for (let nth = 0; !signal.aborted; nth++) {
      this.#log.claim(grip, [op]);
      if (random.chance(0.2)) await this.#increment(owned);
      if (finishing()) await this.#pause(undefined, signal);
      else await this.#pause(random.between(5, 400), signal);
      if (finishing()) continue;
      if (returns) return;
      if (random.chance(fails)) throw new Error("the work fails");
    }
    const drainMs = random.between(0, slowMs);
    if (drainMs > 0) await time.delay(drainMs);
    this.#log.claim(grip, [op]);
    if (drainMs > 0 && random.chance(0.3)) await this.#increment(owned);
    if (random.chance(fails)) throw new Error("the work fails as it ends");
  }

  /** Also after a loss: the guard alone must refuse the write. */
  async #increment(owned: Owned): Promise<void> {
    const { grip, op, silent } = owned;
    const [place] = grip.places;
    const before = silent ? undefined : await this.#writes.read(op);
    if (before === undefined || !place) return;
    this.#log.claim(grip, [op]);
    owned.silent = !(await this.#writes.write(place, op, { seq: before + 1, nth: this.#context.nextId() }));
  }

  /** Until the signal aborts, or so long. */
  #pause(ms: number | undefined, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve();
      const end = (): void => {
        cancel?.();
        signal.removeEventListener("abort", end);
        resolve();
      };
      const cancel = ms === undefined ? undefined : this.#context.time.after(ms, end);
      signal.addEventListener("abort", end);
    });
  }
}
