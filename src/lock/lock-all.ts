import { LockLostError, LockReleasedError } from "../errors.js";
import type { Contender } from "../contender.js";
import type { Txn } from "../etcd/port.js";
import { acquire, type Acquirer, holdOf, queueOf } from "./hold/acquire.js";
import { type AcquireTarget, type HoldFacts, type LockAbout, traceAcquire } from "./hold/events.js";
import { HoldBase, type HoldEnd } from "./hold/hold-base.js";
import { HoldHandle, type Lock } from "./hold/hold.js";
import { KeyWatch } from "./hold/key-watch.js";
import type { WantedListener } from "./queue/demand.js";
import { checkNames } from "../base/options/check.js";
import { checkLock, checkReasonedWait, LOCK_OPTIONS, LOCK_WAIT_OPTIONS } from "../base/options/lock.js";
import type { JoinedEntry } from "./queue/entry.js";
import type { Joined } from "./queue/join.js";
import {
  type Behind,
  exclusive,
  GRANTED,
  lastEntries,
  positionOf,
  type RangeResult,
} from "./queue/lock-mode.js";
import { LockTable } from "./queue/queue.js";
import { PredecessorWait } from "./queue/predecessor-wait.js";
import { leaseSourceOf, type SessionSource } from "./session/cluster.js";
import type { AuditedWait } from "./session/key-audit.js";
import type { Dependent, Lease, SessionEnd } from "./session/lease.js";
import type { LockOptions, LockWaitOptions } from "./session/session-options.js";
import { acquireChannel } from "../base/telemetry/channels.js";
import type { WaitSnapshot } from "../base/telemetry/inspect.js";
import { tellOutside } from "../base/util/own-context.js";
import { newController } from "../base/util/abort.js";

/** Several names that were locked at once. They are lost as a whole and released as a whole. */
export interface MultiLock extends Omit<Lock, "name" | "key" | "turn" | "toJSON"> {
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
  readonly #controller = newController();
  #over = false;
  /** It is lost, but its keys stay until the release. */
  #givenUp = false;
  #explained: Promise<void> | undefined;
  #observed = false;

  constructor(holds: readonly HoldHandle[]) {
    super(HoldBase.leaseOf(holds[0] as HoldHandle));
    this.#holds = holds;
    this.names = Object.freeze(holds.map(({ name }) => name));
    this.keys = Object.freeze(holds.map(({ key }) => key));
    this.revision = (holds[0] as HoldHandle).revision;
    for (const hold of holds) {
      const { signal } = hold;
      signal.addEventListener("abort", () => this.#end(signal.reason as HoldEnd, hold), { once: true });
    }
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

  get wanted(): boolean {
    // The first use of each begins its watch.
    const wanted = this.#holds.map((hold) => hold.wanted);
    return this.held && wanted.includes(true);
  }

  listenForWaiters(listener: WantedListener): () => void {
    const { signal } = this;
    // A call for several of the names is one waiter, with one revision.
    let last: bigint | undefined;
    const told = (waiter: Contender): void => {
      if (!this.held || waiter.revision === last) return;
      last = waiter.revision;
      listener.told(waiter);
    };
    const over = (error?: Error): void => {
      stop();
      listener.over(error);
    };
    const ends = this.#holds.map((hold) => hold.listenForWaiters({ told, over }));
    // A loss of one hold, or `maxHoldMs`, ends all of them before the others are released.
    const lost = (): void => over();
    const stop = (): void => {
      signal.removeEventListener("abort", lost);
      for (const end of ends) end();
    };
    if (signal.aborted) void Promise.resolve().then(lost);
    else signal.addEventListener("abort", lost);
    return stop;
  }

  remainingMs(): number {
    const limitMs = this.limits?.remainingMs() ?? Infinity;
    return Math.min(limitMs, ...this.#holds.map((hold) => hold.remainingMs()));
  }

  /** All names were held longer than `maxHoldMs`. The limits release them after the grace. */
  exceeded(maxHoldMs: number): void {
    this.#givenUp = true;
    const loss = new LockLostError(this.label, this.facts.key, "max_hold", undefined, maxHoldMs);
    tellOutside(() => this.#controller.abort(loss));
    this.ended("max_hold", loss);
  }

  override started(about: LockAbout): void {
    super.started(about);
    for (const hold of this.#holds) hold.startedAsPart({ ...about, name: hold.name });
  }

  get explained(): Promise<void> | undefined {
    return this.#explained;
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
    for (const hold of this.#holds) if (hold.signal.aborted) this.#end(hold.signal.reason as HoldEnd, hold);
  }

  /** Ends all holds: after one is lost, the others are useless and are released. */
  #end(reason: HoldEnd, lost?: HoldHandle): void {
    if (this.#over) return;
    this.#over = true;
    this.stopLimits();
    const release = (): void => this.#holds.forEach((hold) => void hold.release());
    // The keys of the others may have gone with the same lease: then their delay keys stay.
    this.#explained = lost?.explained;
    if (this.#explained) void this.#explained.then(release);
    else release();
    // After that: a listener may lock again at once.
    tellOutside(() => this.#controller.abort(reason));
    if (!(reason instanceof LockLostError)) return;
    const { heldMs } = this;
    const report = (): void => this.ended(reason.loss, reason, heldMs);
    if (this.#explained) void this.#explained.then(report);
    else report();
  }

  protected async releaseOnce(): Promise<void> {
    for (const hold of this.#holds) hold.refresh();
    this.#endWithHolds();
    this.limits?.refresh();
    this.stopLimits();
    if (this.#givenUp) await Promise.allSettled(this.#holds.map((hold) => hold.release()));
    await this.#explained;
    this.#controller.signal.throwIfAborted();
    this.#end(new LockReleasedError(this.label));
    await Promise.all(this.#holds.map((hold) => hold.release()));
  }
}

const NOTHING: RangeResult = { kvs: [], count: 0, more: false };

/** A name that is waited for, with the create revision and the key of our entry, and how many are before it, as far as they are known. */
type WaitedEntry = Pick<WaitSnapshot, "name" | "revision" | "key" | "ahead">;

/** One call of `lockAll`, until the turn has come for every name or its caller gives up. */
export class MultiWaiter implements Dependent, AuditedWait {
  readonly granted: Promise<readonly JoinedEntry[]>;
  #turns: AllTurns | undefined;
  readonly #since: number;
  #gaveUp = false;
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly target: Pick<AllTarget, "names" | "reason" | "onAhead">,
  ) {
    this.#since = lease.services.clock.monotonic();
    lease.waits.add(this);
    this.granted = new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#gather().then(
        (entries) => {
          // Rejected by the end of the session, perhaps unnoticed until this line reads the clock: they leave here.
          if (entries && (lease.over || this.#gaveUp)) this.#leave(entries);
          else if (entries) resolve(entries);
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

  get waitingFor(): WaitedEntry {
    const name = this.target.names[0] as string;
    return this.#turns?.waitingFor ?? { name, revision: undefined, key: undefined, ahead: undefined };
  }

  describe(): WaitSnapshot {
    const { leaseId, services } = this.lease;
    const { names } = this.target;
    const waitedMs = services.clock.monotonic() - this.#since;
    return { kind: "all", label: undefined, names, leaseId, waitedMs, ...this.waitingFor };
  }

  /** The call has, or had, a place in each of the queues. */
  get joined(): boolean {
    return this.#turns !== undefined;
  }

  get unwatched(): readonly JoinedEntry[] {
    return this.#turns?.unwatched ?? [];
  }

  placeLost(entry: JoinedEntry): void {
    if (this.unwatched.includes(entry)) this.#turns?.stop();
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
  async #gather(): Promise<readonly JoinedEntry[] | undefined> {
    while (!this.#gaveUp) {
      const joined = await this.lease.inFlight.track(this.#join());
      const entries = joined.map(({ entry }) => entry);
      // The answer of a join is always awaited: a delete sent before that answer could be executed first.
      // `over` reads the clock and ends the wait: the process may have been suspended before this answer was read.
      if (this.lease.over || this.#gaveUp) return this.#leave(entries);
      if (joined.every(({ result }) => result.state === "granted") && grantAll(entries)) {
        this.target.onAhead?.(0);
        return entries;
      }
      // A call of this session may have taken one of the locks meanwhile.
      for (const entry of entries) queueOf(entry).tenures.end();
      this.#turns = new AllTurns(this.lease, entries);
      if (await this.#turns.granted) return entries;
    }
    return undefined;
  }

  #join(): Promise<readonly Joined[]> {
    const limits = { again: () => !this.#gaveUp };
    return LockTable.of(this.lease).joiner.joinAll({
      names: this.target.names,
      mode: exclusive,
      kind: "all",
      reason: this.target.reason,
      limits,
    });
  }

  #leave(entries: readonly JoinedEntry[]): undefined {
    for (const entry of entries) queueOf(entry).leaveInBackground(entry);
  }
}

/** False: none of them holds, for the key of one is known to be gone. */
function grantAll(entries: readonly JoinedEntry[]): boolean {
  if (entries.some(({ knownGone }) => knownGone)) return false;
  for (const entry of entries) queueOf(entry).grant(entry, GRANTED);
  return true;
}

/**
 * Waits until the turn of several entries that joined together has come. An entry whose turn has come keeps it for as long as its key
 * is there, so that key is watched while others wait. But the watches of two keys have no order: after the last turn, one read
 * of all keys decides, and the grant rests on its revision. If a key is missing, none is granted.
 */
class AllTurns {
  /** false: a key was deleted, or the wait was stopped. All entries leave. */
  readonly granted: Promise<boolean>;
  /** Those whose turn has not come. */
  readonly #waiting: Set<JoinedEntry>;
  readonly #turns = new Map<JoinedEntry, PredecessorWait>();
  readonly #watches: KeyWatch[] = [];
  #over = false;
  #resolve: (granted: boolean) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly entries: readonly JoinedEntry[],
  ) {
    this.#waiting = new Set(entries);
    this.granted = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    void this.#begin().catch((error: unknown) => this.#fail(error as Error));
  }

  get waitingFor(): WaitedEntry {
    const [entry = this.entries[0] as JoinedEntry] = this.#waiting;
    const { name, revision, key } = entry;
    return { name, revision, key, ahead: this.#turns.get(entry)?.ahead };
  }

  /** See `AuditedWait`. */
  get unwatched(): readonly JoinedEntry[] {
    return [...this.#turns].filter(([, wait]) => !wait.seesOwnEnd).map(([entry]) => entry);
  }

  stop(): void {
    this.#end(() => this.#resolve(false));
  }

  /** Reads the entries before each of ours, in one request. If the turn of all has come at that revision, they are granted. */
  async #begin(): Promise<void> {
    const txn: Txn = {
      queues: this.entries.map(({ path }) => path),
      compare: [],
      success: this.entries.map((entry) => ({ kind: "range", ...lastEntries(entry) })),
      failure: [],
    };
    const { ranges } = await this.lease.services.client.txn(txn, this.lease.policy("read the queues"));
    const positions = this.entries.map((entry, n) => positionOf(entry, ranges[n] ?? NOTHING));
    if (positions.every((position) => position === "first")) return this.#grant();
    this.entries.forEach((entry, n) => {
      if (this.#over) return;
      const mismatch = entry.mismatchIn([ranges[n] ?? NOTHING], false);
      const position = positions[n];
      if (mismatch) this.#fail(mismatch);
      else if (typeof position === "object") this.#wait(entry, position);
      else if (position === "first") this.#turnCame(entry);
      else this.stop();
    });
  }

  #wait(entry: JoinedEntry, position: Behind): void {
    const outcome = {
      turnGranted: () => this.#turnCame(entry),
      keyGone: () => this.stop(),
      waitFailed: (error: Error) => this.#fail(error),
    };
    this.#turns.set(entry, new PredecessorWait(entry, outcome, position));
  }

  #turnCame(entry: JoinedEntry): void {
    this.#turns.delete(entry);
    this.#waiting.delete(entry);
    if (this.#waiting.size > 0) this.#watches.push(new KeyWatch(entry, () => this.stop(), true));
    else void this.#confirm().catch((error: unknown) => this.#fail(error as Error));
  }

  async #confirm(): Promise<void> {
    const keys = this.entries.map(({ key }) => ({ key }));
    const { ranges } = await this.lease.services.client.ranges(keys, this.lease.policy("read the own keys"));
    const areThere = this.entries.every((entry, n) => ranges[n]?.kvs.some((kv) => entry.is(kv)));
    if (areThere) this.#grant();
    else this.stop();
  }

  #grant(): void {
    if (this.#over) return;
    // The answer may be older than what a watch has reported meanwhile.
    if (!grantAll(this.entries)) return this.stop();
    this.#over = true;
    for (const watch of this.#watches) watch.stop();
    this.#resolve(true);
  }

  #fail(error: Error): void {
    this.#end(() => this.#reject(error));
  }

  #end(settle: () => void): void {
    if (this.#over) return;
    this.#over = true;
    for (const wait of this.#turns.values()) wait.stop();
    for (const watch of this.#watches) watch.stop();
    for (const entry of this.entries) queueOf(entry).leaveInBackground(entry);
    settle();
  }
}

/**
 * Locks all of `names` at once. One transaction puts an entry into each queue, so the order is the same in every queue, and
 * callers that lock the same names in any order never wait for each other in a circle. Excludes, and is excluded by,
 * every `Mutex`, reader and writer of one of the names. If one entry is lost while waiting, all are removed and
 * joined anew, behind those that joined in the meantime; if one is lost while held, all are lost.
 * `maxHoldMs` and `warnHoldMs` apply to the whole, from the moment when all names are held.
 * To take several locks, call this once; never take one lock after the other. If all names are free, the call costs one transaction; the
 * release of 30 names costs two.
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
  options?: Omit<LockWaitOptions, "maxWaiting"> & LockOptions,
): Promise<MultiLock> {
  const leases = leaseSourceOf(source);
  const checked = checkNames(names);
  const wait = checkReasonedWait(options, { where: "lockAll", also: LOCK_OPTIONS, source: leases });
  const target: AllTarget = {
    source: leases,
    kind: "all",
    name: checked[0] as string,
    names: checked,
    options: checkLock("lockAll", options, LOCK_WAIT_OPTIONS),
    ...(wait.reason !== undefined && { reason: wait.reason }),
  };
  if (!acquireChannel.hasSubscribers) return acquire(target, wait, AT_ONCE);
  const call = { tries: false, signal: wait.signal };
  return traceAcquire(target, call, (traced) => acquire(traced, wait, AT_ONCE));
}

interface AllTarget extends AcquireTarget {
  readonly names: readonly string[];
  readonly reason?: string;
}

const AT_ONCE: Acquirer<AllTarget, readonly JoinedEntry[], MultiLockHandle> = {
  join: (lease, target) => new MultiWaiter(lease, target),
  made(entries, target) {
    const lock = new MultiLockHandle(entries.map((entry) => holdOf(entry, HoldHandle)));
    lock.started(target);
    return lock;
  },
  unwanted(entries) {
    for (const entry of entries) queueOf(entry).leaveInBackground(entry);
  },
};
