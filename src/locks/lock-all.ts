import { setMaxListeners } from "node:events";
import { LockLostError, LockReleasedError } from "../errors.js";
import type { Txn } from "../etcd/port.js";
import { acquire, type Acquirer } from "../hold/acquire.js";
import { type AcquireTarget, type HoldFacts, type LockAbout, traceAcquire } from "../hold/events.js";
import { HoldBase, type HoldEnd } from "../hold/hold-base.js";
import { HoldHandle, type Lock } from "../hold/hold.js";
import { checkNames } from "../options/check.js";
import {
  checkLock,
  checkQueueWait,
  LOCK_OPTIONS,
  NO_LOCK_OPTIONS,
  QUEUE_WAIT_OPTIONS,
} from "../options/lock.js";
import type { JoinedEntry } from "../queue/entry.js";
import type { Joined } from "../queue/join.js";
import { exclusive, lastEntries, positionOf } from "../queue/lock-mode.js";
import { LockTable } from "../queue/queue.js";
import { PredecessorWait } from "../queue/predecessor-wait.js";
import { leaseSourceOf, type SessionSource } from "../session/cluster.js";
import type { Dependent, Lease, SessionEnd } from "../session/lease.js";
import type { LockOptions, QueueWaitOptions } from "../session/session-options.js";
import { acquireChannel } from "../telemetry/channels.js";
import type { WaitSnapshot } from "../telemetry/inspect.js";
import { tellOutside } from "../util/own-context.js";

/** Several names that were locked at once. They are lost as a whole and released as a whole. */
export interface MultiLock extends Omit<Lock, "name" | "key" | "toJSON"> {
  /** The names as passed to `lockAll`. */
  readonly names: readonly string[];
  /** The key under each name, in the same order. */
  readonly keys: readonly string[];
  /** For logs, at this moment. Bigints become decimal strings; `remainingMs` is a whole number. */
  toJSON(): MultiLockJson;
}

/** A MultiLock in JSON. */
interface MultiLockJson {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  readonly revision: string;
  readonly held: boolean;
  readonly remainingMs: number;
  readonly fence: string;
}

class MultiLockHandle extends HoldBase implements MultiLock {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  /** The create revision of all keys, which one transaction put. */
  readonly revision: bigint;
  readonly #holds: readonly HoldHandle[];
  readonly #controller = new AbortController();
  #over = false;
  #observed = false;

  constructor(holds: readonly HoldHandle[]) {
    super(HoldBase.leaseOf(holds[0] as HoldHandle));
    this.#holds = holds;
    this.names = Object.freeze(holds.map(({ name }) => name));
    this.keys = Object.freeze(holds.map(({ key }) => key));
    this.revision = (holds[0] as HoldHandle).revision;
    // Any number of listeners is legitimate.
    setMaxListeners(0, this.#controller.signal);
    for (const { signal } of holds)
      signal.addEventListener("abort", () => this.#end(signal.reason as HoldEnd), { once: true });
  }

  get fence(): bigint {
    return this.revision;
  }

  get facts(): HoldFacts {
    return { key: this.keys[0] as string, revision: this.revision, fence: this.fence };
  }

  get signal(): AbortSignal {
    this.#observed = true;
    this.#endWithHolds();
    this.limits?.refresh();
    return this.#controller.signal;
  }

  get held(): boolean {
    this.limits?.refresh();
    return this.#holds.every((hold) => hold.held) && !this.#controller.signal.aborted;
  }

  remainingMs(): number {
    const limitMs = this.limits?.remainingMs() ?? Infinity;
    return Math.min(limitMs, ...this.#holds.map((hold) => hold.remainingMs()));
  }

  /** All names were held longer than `maxHoldMs`. The limits release them after the grace. */
  exceeded(maxHoldMs: number): void {
    const loss = new LockLostError(this.label, this.facts.key, "max_hold", undefined, maxHoldMs);
    tellOutside(() => this.#controller.abort(loss));
    this.ended("max_hold", loss);
  }

  override started(about: LockAbout): void {
    super.started(about);
    for (const hold of this.#holds) hold.startedAsPart({ ...about, name: hold.name });
  }

  toJSON(): MultiLockJson {
    const { names, keys } = this;
    const revision = this.revision.toString();
    return { names, keys, revision, ...this.standing, fence: revision };
  }

  protected override get title(): string {
    return "MultiLock";
  }

  protected override get shown(): Readonly<Record<string, unknown>> {
    return { names: this.names, fence: this.fence };
  }

  protected get observed(): boolean {
    return this.#observed;
  }

  protected get label(): string {
    return this.names.join(", ");
  }

  protected get end(): HoldEnd | undefined {
    return this.signal.reason as HoldEnd | undefined;
  }

  /** Listeners of the session's own signal run before the session notifies its holds, so this checks each hold. */
  #endWithHolds(): void {
    for (const { signal } of this.#holds) if (signal.aborted) this.#end(signal.reason as HoldEnd);
  }

  /** Ends all holds: after one is lost, the others are useless and are released. */
  #end(reason: HoldEnd): void {
    if (this.#over) return;
    this.#over = true;
    this.limits?.stop();
    for (const hold of this.#holds) void hold.release();
    // After that: a listener may lock again at once.
    tellOutside(() => this.#controller.abort(reason));
    if (reason instanceof LockLostError) this.ended(reason.loss, reason);
  }

  protected async releaseOnce(): Promise<void> {
    for (const hold of this.#holds) hold.refresh();
    this.#endWithHolds();
    this.limits?.refresh();
    this.limits?.stop();
    if (this.limits?.exceeded) await Promise.allSettled(this.#holds.map((hold) => hold.release()));
    this.#controller.signal.throwIfAborted();
    this.#end(new LockReleasedError(this.label));
    await Promise.all(this.#holds.map((hold) => hold.release()));
  }
}

/** One call of `lockAll`, until it holds every name or its caller gives up. */
export class MultiWaiter implements Dependent {
  readonly granted: Promise<readonly HoldHandle[]>;
  #turns: AllTurns | undefined;
  readonly #since: number;
  #gaveUp = false;
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly names: readonly string[],
    /** Called with 0 if the join found all queues empty. */
    private readonly onAhead?: (ahead: number) => void,
  ) {
    this.#since = lease.services.clock.monotonic();
    lease.waits.add(this);
    this.granted = new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#gather().then(
        (holds) => {
          // Rejected by the end of the session, perhaps unnoticed until this line reads the clock: release them here.
          if (lease.over || this.#gaveUp) for (const hold of holds ?? []) void hold.release();
          else if (holds) resolve(holds);
          lease.waits.delete(this);
        },
        (error: Error) => {
          lease.waits.delete(this);
          reject(error);
        },
      );
    });
    // The caller may have given up already: then nothing else handles a rejection.
    this.granted.catch(() => undefined);
  }

  /** A name that the call waits for, with the create revision of its entry; undefined if it has none yet. */
  get waitingFor(): { readonly name: string; readonly revision: bigint | undefined } {
    return this.#turns?.waitingFor ?? { name: this.names[0] as string, revision: undefined };
  }

  describe(): WaitSnapshot {
    const { names, lease } = this;
    const { name, revision } = this.waitingFor;
    const waiting = this.#turns?.waiting(name);
    const waitedMs = lease.services.clock.monotonic() - this.#since;
    return {
      ...{ kind: "all", label: undefined, names, name, leaseId: lease.leaseId, revision, waitedMs },
      ...{ key: waiting?.key, ahead: waiting?.ahead },
    };
  }

  /** The call has, or had, a place in each of the queues. */
  get joined(): boolean {
    return this.#turns !== undefined;
  }

  /** The caller waits no longer; its entries are removed in the background. */
  giveUp(): void {
    this.#gaveUp = true;
    this.lease.waits.delete(this);
    this.#turns?.stop();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#reject(reason);
    this.giveUp();
  }

  /** If one entry is lost, all are joined anew, together. `undefined`: the caller gave up. */
  async #gather(): Promise<readonly HoldHandle[] | undefined> {
    while (!this.#gaveUp) {
      const joined = await this.lease.inFlight.track(this.#join());
      const entries = joined.map(({ entry }) => entry);
      // The answer of a join is always awaited: a delete sent before that answer could be executed first.
      // `over` reads the clock and ends the wait: the process may have been suspended before this answer was read.
      if (this.#gaveUp || this.lease.over) return this.#leave(entries);
      const alone = joined.every(({ result }) => result.state === "granted");
      if (alone) this.onAhead?.(0);
      this.#turns = new AllTurns(this.lease, entries, alone);
      const holds = await this.#turns.held;
      if (holds) return holds;
    }
    return undefined;
  }

  #join(): Promise<readonly Joined[]> {
    const limits = { again: () => !this.#gaveUp };
    return LockTable.of(this.lease).joiner.joinAll({
      names: this.names,
      mode: exclusive,
      kind: "all",
      limits,
    });
  }

  #leave(entries: readonly JoinedEntry[]): undefined {
    for (const entry of entries) LockTable.of(this.lease).queue(entry.name).leaveInBackground(entry);
  }
}

/** Waits until several entries that joined together are all granted. */
class AllTurns {
  /** All holds; `undefined` if one was lost, so that all were released. */
  readonly held: Promise<readonly HoldHandle[] | undefined>;
  readonly #holds = new Map<JoinedEntry, HoldHandle>();
  readonly #turns = new Map<JoinedEntry, PredecessorWait>();
  #over = false;
  #resolve: (held: readonly HoldHandle[] | undefined) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly entries: readonly JoinedEntry[],
    alone: boolean,
  ) {
    this.held = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (alone) for (const entry of entries) this.#grant(entry, false);
    else void this.#read().catch((error: unknown) => this.#end(() => this.#reject(error as Error)));
  }

  /** A name that is not held yet, with the create revision of our entry. */
  get waitingFor(): { readonly name: string; readonly revision: bigint } {
    return this.entries.find((entry) => !this.#holds.has(entry)) ?? (this.entries[0] as JoinedEntry);
  }

  /** The key under a name, and how many entries are before it, as far as that is known. */
  waiting(name: string): { readonly key: string | undefined; readonly ahead: number | undefined } {
    const entry = this.entries.find((each) => each.name === name);
    return { key: entry?.key, ahead: entry && this.#turns.get(entry)?.ahead };
  }

  /** Releases what is held and leaves the other queues. */
  stop(): void {
    this.#end(() => this.#resolve(undefined));
  }

  /** Reads the entries before each of ours, in one request. */
  async #read(): Promise<void> {
    const txn: Txn = {
      queues: this.entries.map(({ path }) => path),
      compare: [],
      success: this.entries.map((entry) => ({ kind: "range", ...lastEntries(entry) })),
      failure: [],
    };
    const { ranges } = await this.lease.services.client.txn(txn, this.lease.policy("read the queues"));
    this.entries.forEach((entry, n) => {
      const range = ranges[n];
      if (!range || this.#over) return;
      const mismatch = entry.mismatchIn([range], false);
      if (mismatch) this.#end(() => this.#reject(mismatch));
      else this.#wait(entry, positionOf(entry, range));
    });
  }

  #wait(entry: JoinedEntry, position: ReturnType<typeof positionOf>): void {
    if (position === "gone") return this.stop();
    if (position === "first") return this.#grant(entry);
    const outcome = {
      turnGranted: () => this.#grant(entry),
      keyGone: () => this.stop(),
      waitFailed: (error: Error) => this.#end(() => this.#reject(error)),
    };
    this.#turns.set(entry, new PredecessorWait(entry, outcome, position));
  }

  /** `others`: some names are not granted yet. Until they are, its key is watched: the call must not resolve with one that is gone. */
  #grant(entry: JoinedEntry, others = this.#holds.size + 1 < this.entries.length): void {
    const queue = LockTable.of(this.lease).queue(entry.name);
    this.#turns.delete(entry);
    const hold = new HoldHandle(queue, entry, others);
    hold.startedAsPart({ kind: "all", name: entry.name, options: NO_LOCK_OPTIONS });
    this.#holds.set(entry, hold);
    // It may be lost while the other entries still wait.
    hold.signal.addEventListener("abort", () => this.stop());
    if (this.#holds.size < this.entries.length) return;
    this.#over = true;
    this.#resolve(this.entries.map((each) => this.#holds.get(each) as HoldHandle));
  }

  #end(settle: () => void): void {
    if (this.#over) return;
    this.#over = true;
    for (const entry of this.entries) {
      this.#turns.get(entry)?.stop();
      const hold = this.#holds.get(entry);
      if (hold) void hold.release();
      else LockTable.of(this.lease).queue(entry.name).leaveInBackground(entry);
    }
    settle();
  }
}

/**
 * Locks all of `names` at once. One transaction puts an entry into each queue, so the order is the same in every queue, and
 * callers that lock the same names in any order never wait for each other in a circle. Excludes, and is excluded by,
 * every `Mutex`, reader and writer of one of the names. If one entry is lost while waiting, all are removed and
 * joined anew, behind those that joined in the meantime; if one is lost while held, all are lost.
 * `maxHoldMs` and `warnHoldMs` apply to the whole, from the moment when all names are held.
 * To take several locks, call this once; never take one lock after the other.
 *
 * On abort and throws: as `Mutex.lock`, for each of the names.
 * @param names 1 to 30, each valid for a Mutex; no duplicates, none under another one, such as "a/b" under "a".
 * @param options limits of the wait, and the options that a Mutex takes, such as `label`.
 * @throws {LockTimeoutError} after `timeoutMs`; it names the first lock that was not acquired yet.
 * @throws {DeadlockError} in an async context that already holds one of the names, or a name under one of them.
 */
export async function lockAll(
  source: SessionSource,
  names: readonly string[],
  options?: QueueWaitOptions & LockOptions,
): Promise<MultiLock> {
  const leases = leaseSourceOf(source);
  const checked = checkNames(names);
  const wait = checkQueueWait(options, { where: "lockAll", also: LOCK_OPTIONS, source: leases });
  const target: AllTarget = {
    source: leases,
    kind: "all",
    name: checked[0] as string,
    names: checked,
    options: checkLock("lockAll", options, QUEUE_WAIT_OPTIONS),
  };
  if (!acquireChannel.hasSubscribers) return acquire(target, wait, AT_ONCE);
  const call = { tries: false, signal: wait.signal };
  return traceAcquire(target, call, (traced) => acquire(traced, wait, AT_ONCE));
}

interface AllTarget extends AcquireTarget {
  readonly names: readonly string[];
}

const AT_ONCE: Acquirer<AllTarget, readonly HoldHandle[], MultiLockHandle> = {
  join: (lease, { names, onAhead }) => new MultiWaiter(lease, names, onAhead),
  made(holds, target) {
    const lock = new MultiLockHandle(holds);
    lock.started(target);
    return lock;
  },
  unwanted(holds) {
    for (const hold of holds) void hold.release();
  },
};
