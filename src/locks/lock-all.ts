import { setMaxListeners } from "node:events";
import { LockLostError, LockReleasedError } from "../errors.js";
import { acquire, type Acquirer } from "../hold/acquire.js";
import { type AcquireTarget, type HoldFacts, type LockAbout, traceAcquire } from "../hold/events.js";
import { HoldBase, type HoldEnd } from "../hold/hold-base.js";
import type { HoldHandle, Lock } from "../hold/hold.js";
import { checkNames } from "../options/check.js";
import { checkLock, checkQueueWait, LOCK_OPTIONS, QUEUE_WAIT_OPTIONS } from "../options/lock.js";
import { leaseSourceOf, type SessionSource } from "../session/cluster.js";
import type { LockOptions, QueueWaitOptions } from "../session/session-options.js";
import { acquireChannel } from "../telemetry/channels.js";
import { tellOutside } from "../util/own-context.js";
import { MultiWaiter } from "./multi-wait.js";

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
