// How a call takes a lock: with the session's lease, in the queue of its name, and again with the next lease if the session ended.
import {
  DeadlockError,
  EtcdRefusedError,
  EtcdUnavailableError,
  LockTimeoutError,
  SessionClosedError,
  SessionLostError,
} from "../../errors.js";
import { Backoff } from "../../etcd/retry.js";
import type { CheckedWait } from "../../base/options/check.js";
import type { CheckedLockWait, CheckedQueueWait } from "../../base/options/lock.js";
import { type Ahead, readContendersAhead } from "../queue/contenders.js";
import type { JoinedEntry, QueueEntry } from "../queue/entry.js";
import { LockTable } from "../queue/queue.js";
import type { JoinOptions, Queue } from "../queue/queue.js";
import type { LockMode } from "../queue/lock-mode.js";
import { prioritized } from "../queue/priority-mode.js";
import { PriorityWaiter } from "../queue/priority-waiter.js";
import { Superseding } from "../queue/superseding.js";
import type { Lease } from "../session/lease.js";
import { acquireChannel } from "../../base/telemetry/channels.js";
import { type Clock, pause, type Timer } from "../../base/util/clock.js";
import { withCallersStack } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { type AcquireTarget, type LockAbout, publishRejoin, traceAcquire } from "./events.js";
import { HoldHandle } from "./hold.js";
import { enclosingConflict, enclosingHold } from "./reentrancy.js";

/** The last part of a wait, in which the queue is read so that a timeout can name the holder: longer where etcd answers slowly. */
const PROBE_MS = 500;
/** A read that has waited so long, and several times as long as the last answer took, counts as unanswered. */
const UNANSWERED_MS = 400;
const ROUND_TRIPS = 3;
/** With a disk and a new connection, an etcd that is in order may need as long for an answer. */
const SHORT_MS = 50;
const TOO_SHORT = "etcd had no time to answer";
const REJOINING = "its session had ended, and the next one was not used yet";
/** The wait for etcd of a call that does not wait for its turn. */
const TRY_TIMEOUT_MS = 5000;
/** An attempt that lasted longer has waited in a queue: its session did not end at once, as the one before it may have. */
const LONG_ATTEMPT_MS = 5000;

/** A call that waits in one queue or several. */
export interface TurnWaiter<T> {
  readonly granted: Promise<T>;
  /** The call has, or had, a place in the queue, which is lost with the session. */
  readonly joined: boolean;
  readonly waitingFor: Waited;
  /** The caller waits no longer; its entry is removed in the background. */
  giveUp(): void;
}

/** A name that the call waits for, with the create revision of its entry; undefined if it has none yet. */
export interface Waited {
  readonly name: string;
  readonly revision: bigint | undefined;
}

/** How a target is acquired. `T` is what etcd grants, `R` what the caller gets. One object serves all calls of its kind. */
export interface Acquirer<Target, T, R> {
  /** Joins the queues. `limitMs` is what is left of the time limit. */
  join(lease: Lease, target: Target, limitMs: number | undefined): TurnWaiter<T>;
  /** The value for the caller. @throws the end of the session, if it has ended since the grant. */
  made(granted: T, target: Target, lease: Lease): R;
  /** Releases what was granted after the caller gave up. */
  unwanted(granted: T, target: Target, lease: Lease): void;
  /** What etcd did not answer in time, of a call that does not wait for its turn and so has no holder to report. */
  readonly tried?: (target: Target) => string;
}

/**
 * Joins with a lease that accepts new calls, waits for the turn with the rest of the time limit, and resolves with what `by` makes
 * of the grant. The session may have ended unnoticed, for example because its lease was revoked: unless the call had joined a queue
 * by then, it begins again, with the next session of the cluster. A call with `rejoin` begins again in any case. This is the only
 * suspended function of a waiting call, and it keeps few variables: a process may have thousands.
 * @throws DeadlockError when this async context would wait for itself. @throws the reason of an aborted signal.
 */
export async function acquire<Target extends AcquireTarget, T, R>(
  target: Target,
  wait: CheckedQueueWait,
  by: Acquirer<Target, T, R>,
): Promise<R> {
  const { source } = target;
  wait.signal?.throwIfAborted();
  if (!by.tried) assertNoDeadlock(target);
  const left = timeBudget(source.services.clock, wait.timeoutMs);
  let lease: Lease | undefined;
  let waiter: TurnWaiter<T> | undefined;
  let repetition: Repetition | undefined;
  for (;;) {
    try {
      const found = source.lease({ signal: wait.signal, timeoutMs: left() });
      lease = found instanceof Promise ? await found : found;
      lease.assertOpen();
      wait.signal?.throwIfAborted();
      waiter = by.join(lease, target, left());
      const granted = await waitFor(waiter, { lease, target, by, wait, limitMs: left() });
      return by.made(granted, target, lease);
    } catch (error) {
      repetition ??= new Repetition(target, wait, by.tried !== undefined);
      if (!repetition.mayFollow(error, lease, waiter?.joined))
        throw withCallersStack(repetition.atLimit(error));
      waiter = undefined;
      await repetition.pause(error, lease, left());
    }
  }
}

interface Waiting<Target, T> {
  readonly lease: Lease;
  readonly target: Target;
  readonly by: Acquirer<Target, T, unknown>;
  readonly wait: CheckedQueueWait;
  readonly limitMs: number | undefined;
}

/** Without a limit or a signal, a wait has no object more. */
function waitFor<Target, T>(
  waiter: TurnWaiter<T>,
  { lease, target, by, wait, limitMs }: Waiting<Target, T>,
): Promise<T> {
  const { services } = lease;
  const limits = { signal: wait.signal, timeoutMs: limitMs };
  if (limits.signal === undefined && limitMs === undefined) return waiter.granted;
  const onGiveUp = (): void => waiter.giveUp();
  const onUnwanted = (granted: T): void => by.unwanted(granted, target, lease);
  if (by.tried || limitMs === undefined) {
    const onTimeout = (): Error =>
      new EtcdUnavailableError(by.tried?.(target) ?? "", services.client.hosts.whyUnanswered(limitMs));
    return settleWithin(waiter.granted, limits, services, { onTimeout, onGiveUp, onUnwanted });
  }
  const probe = new HolderProbe(lease, waiter, limitMs);
  const onTimeout = (): Error | Promise<Error> => probe.timeoutError(wait.timeoutMs ?? 0);
  const settled = settleWithin(waiter.granted, limits, services, { onTimeout, onGiveUp, onUnwanted });
  return settled.finally(() => probe.cancel());
}

/** Decides whether and when a failed call restarts on the next session. Created on the first failure. */
class Repetition {
  /** Failures in a row. */
  #failures = 0;
  #began = -Infinity;
  /** With one of the sessions: etcd has said that somebody is ahead. */
  #hadPlace = false;
  readonly #backoff: Backoff;

  constructor(
    private readonly target: AcquireTarget,
    private readonly wait: CheckedQueueWait,
    private readonly tries: boolean,
  ) {
    this.#backoff = new Backoff(target.source.services.clock);
  }

  /** Whether the next session of the source may give the call another result. */
  mayFollow(error: unknown, lease: Lease | undefined, joined = false): boolean {
    const { source } = this.target;
    const { rejoin } = this.wait;
    this.#hadPlace ||= joined;
    if (!source.reopens) return false;
    if (error instanceof EtcdUnavailableError) return rejoin;
    if (joined && !rejoin) return false;
    if (error instanceof SessionLostError || error instanceof SessionClosedError) return true;
    // The lease may be the reason, but not of two in a row.
    return isOfSession(error, lease) && !joined && this.#failures === 0;
  }

  /**
   * Resolves when the call may begin again: at once after the first end of a session, else after a pause; pauses grow up to 1 s.
   * @throws the reason of an aborted signal. @throws SessionClosedError when the cluster is closed.
   * @throws when the time limit ends first.
   */
  async pause(error: unknown, lease: Lease | undefined, leftMs = Infinity): Promise<void> {
    const { clock, closed } = this.target.source.services;
    const { signal } = this.wait;
    signal?.throwIfAborted();
    closed.throwIfAborted();
    const delayMs = this.#nextMs(error);
    if (delayMs < leftMs) this.#publish(error as Error, lease, delayMs);
    if (delayMs > 0) await pause(clock, Math.min(delayMs, leftMs), signal, closed);
    signal?.throwIfAborted();
    closed.throwIfAborted();
    if (delayMs >= leftMs) throw withCallersStack(this.#overdue(error));
    this.#began = clock.monotonic();
  }

  #nextMs(error: unknown): number {
    const unanswered = error instanceof EtcdUnavailableError;
    const lastedMs = this.target.source.services.clock.monotonic() - this.#began;
    if (!unanswered && lastedMs > LONG_ATTEMPT_MS) {
      this.#failures = 0;
      this.#backoff.reset();
    }
    this.#failures++;
    return unanswered || this.#failures > 1 ? this.#backoff.nextMs() : 0;
  }

  /** A limit that is too short for an answer says nothing about etcd: unless attempts have failed, it is only a timeout. */
  atLimit(error: unknown): unknown {
    const { timeoutMs = Infinity } = this.wait;
    const { attemptsFail, roundTripMs } = this.target.source.services.client.hosts;
    const shortMs = Math.max(SHORT_MS, Math.min(UNANSWERED_MS, ROUND_TRIPS * roundTripMs));
    if (this.tries || !(error instanceof EtcdUnavailableError) || attemptsFail || timeoutMs > shortMs)
      return error;
    return new LockTimeoutError(this.target.name, timeoutMs, undefined, undefined, TOO_SHORT);
  }

  /** The error for the caller when the time limit ends before the call has begun again after `error`. */
  #overdue(error: unknown): unknown {
    if (this.tries || error instanceof EtcdUnavailableError) return this.atLimit(error);
    const { timeoutMs = 0 } = this.wait;
    const { hosts } = this.target.source.services.client;
    if (hosts.attemptsFail || !this.#hadPlace)
      return new EtcdUnavailableError(
        `open a session within ${timeoutMs} ms`,
        hosts.whyUnanswered(timeoutMs),
      );
    return new LockTimeoutError(this.target.name, timeoutMs, undefined, undefined, REJOINING);
  }

  #publish(error: Error, lease: Lease | undefined, delayMs: number): void {
    const failures = this.#failures;
    const facts = { lease, error, failures, delayMs };
    if (this.wait.rejoin) publishRejoin(this.target.source.services, this.target, facts);
  }
}

/** Whether another session could give the same call another result. */
export const isOfSession = (error: unknown, lease: Lease | undefined): boolean =>
  error instanceof SessionLostError ||
  error instanceof SessionClosedError ||
  (error instanceof EtcdRefusedError && lease?.unfit === true);

const NO_LIMIT = (): undefined => undefined;

/** The rest of a time limit that earlier steps may have used in part. */
export function timeBudget(clock: Clock, timeoutMs: number | undefined): () => number | undefined {
  if (timeoutMs === undefined) return NO_LIMIT;
  const start = clock.monotonic();
  return () => Math.max(1, Math.ceil(timeoutMs - (clock.monotonic() - start)));
}

/** @throws DeadlockError when this async context would wait for itself. */
export function assertNoDeadlock({
  source: { services },
  name: first,
  names = [first],
}: AcquireTarget): void {
  for (const name of names) {
    const blocking = enclosingConflict(services, name);
    if (blocking === undefined) continue;
    const advice = enclosingHold(services, name)
      ? "; a Mutex can be entered again with { reentrant: true }"
      : "";
    const conflict = `would wait for "${blocking}", which this async context already holds${advice}`;
    throw new DeadlockError(name, `Lock "${name}" ${conflict}`);
  }
}

/** Reads the queue shortly before the time limit, so that a timeout can name the holder without delaying its caller. */
class HolderProbe {
  #name: string | undefined;
  #sentAt: number | undefined;
  #ahead: Ahead | undefined;
  #failure: unknown;
  readonly #timer: Timer;

  constructor(
    private readonly lease: Lease,
    private readonly waiter: Pick<TurnWaiter<unknown>, "joined" | "waitingFor">,
    limitMs: number,
  ) {
    const { clock, client } = lease.services;
    const probeMs = Math.min(Math.max(PROBE_MS, ROUND_TRIPS * client.hosts.roundTripMs), limitMs / 2);
    this.#timer = clock.after(limitMs - probeMs, () => void this.#read(probeMs));
  }

  cancel(): void {
    this.#timer.cancel();
  }

  /** LockTimeoutError if etcd has said that somebody is ahead, and has not fallen silent since. */
  timeoutError(timeoutMs: number): Error | Promise<Error> {
    const { clock } = this.lease.services;
    if (this.#isTaken()) return this.#lockTimeout(timeoutMs);
    // After this process was paused, the answer may still be in the socket: timers run before it is read.
    return new Promise((resolve) => {
      clock.afterPendingEvents(() =>
        resolve(this.#isTaken() ? this.#lockTimeout(timeoutMs) : this.#unavailable(timeoutMs)),
      );
    });
  }

  #isTaken(): boolean {
    const known = this.#known;
    if (known) return this.waiter.joined ? known.ahead > 0 : this.#isAnothers(known);
    return this.waiter.joined && !this.#unanswered();
  }

  /** An unanswered join of this session may have put the key that was found. */
  #isAnothers({ holder }: Ahead): boolean {
    if (holder === undefined) return false;
    const { lease } = this;
    return (
      holder.leaseId !== lease.leaseId ||
      [...lease.entries()].some(({ revision }) => revision === holder.revision)
    );
  }

  /** A wait whose streams have broken is not unanswered: its read was answered before, or was sent since. */
  #unanswered(): boolean {
    const { clock, client } = this.lease.services;
    if (this.#ahead !== undefined || this.#sentAt === undefined) return false;
    if (this.#failure !== undefined) return this.#failure instanceof EtcdUnavailableError;
    const waitedMs = clock.monotonic() - this.#sentAt;
    const { attemptsFail, roundTripMs } = client.hosts;
    return attemptsFail || waitedMs >= Math.max(UNANSWERED_MS, ROUND_TRIPS * roundTripMs);
  }

  #lockTimeout(timeoutMs: number): LockTimeoutError {
    const known = this.#known;
    return new LockTimeoutError(this.waiter.waitingFor.name, timeoutMs, known?.holder, known?.ahead);
  }

  #unavailable(timeoutMs: number): EtcdUnavailableError {
    const why = this.lease.services.client.hosts.whyUnanswered(timeoutMs);
    const read = this.#failure instanceof EtcdUnavailableError ? this.#failure.members : why;
    const members = read.size > 0 ? read : why;
    return new EtcdUnavailableError(`lock "${this.waiter.waitingFor.name}" within ${timeoutMs} ms`, members);
  }

  /** What etcd has answered about the name that the call still waits for. */
  get #known(): Ahead | undefined {
    return this.#name === this.waiter.waitingFor.name ? this.#ahead : undefined;
  }

  async #read(probeMs: number): Promise<void> {
    const { services } = this.lease;
    const { name, revision } = this.waiter.waitingFor;
    // Not as short as the limit of the call may be: that would blame a member that is in order, and leave it.
    const giveUpMs = Math.max(probeMs, UNANSWERED_MS);
    const policy = { ...this.lease.policy("read the queue"), giveUpMs, attemptMs: giveUpMs };
    this.#name = name;
    this.#sentAt = services.clock.monotonic();
    try {
      this.#ahead = await readContendersAhead(services, { name, revision }, policy);
    } catch (error) {
      // The end of the session rejects the call itself.
      this.#failure = error;
    }
  }
}

/** Which queue to join, and the lease and entry to use. */
export interface JoinTarget extends Omit<JoinOptions, keyof LockAbout>, AcquireTarget {}

/** The class of the handle for the caller: only that of an exclusive hold has a fence. */
type HandleClass<H extends HoldHandle> = new (queue: Queue, entry: JoinedEntry, watched: boolean) => H;

/** A lock makes it once, for all of its calls. */
export interface HoldTarget<H extends HoldHandle> extends JoinTarget {
  readonly handle: HandleClass<H>;
}

export const queueOf = ({ lease, name }: QueueEntry): Queue => LockTable.of(lease).queue(name);

/** Waits in the queue of one name. */
export const inQueue: Pick<Acquirer<JoinTarget, JoinedEntry, unknown>, "join" | "unwanted"> = {
  join: (lease, target) => LockTable.of(lease).queue(target.name).join(target),
  unwanted: (entry) => queueOf(entry).leaveInBackground(entry),
};

/** The hold that the caller gets. */
function started<H extends HoldHandle>(entry: JoinedEntry, target: HoldTarget<H>): H {
  const hold = holdOf(entry, target.handle);
  hold.started(target);
  return hold;
}

const AS_HOLD = { ...inQueue, made: started };
const BY_PRIORITY: typeof AS_HOLD = {
  ...AS_HOLD,
  join: (lease, target) => new PriorityWaiter(LockTable.of(lease), target.name, target),
};

/**
 * Resolves with a hold when its turn has come. `check` throws on bad options. It is not an async function: that would keep one more
 * suspended function per waiter, and a process may have thousands.
 */
export function acquireHold<H extends HoldHandle>(
  plain: HoldTarget<H>,
  check: () => CheckedLockWait,
): Promise<H> {
  try {
    const wait = check();
    const { reason, maxWaiting } = wait;
    const superseding = wait.supersede ? new Superseding() : undefined;
    const isPlain = reason === undefined && maxWaiting === undefined && !superseding;
    const asked = isPlain ? plain : { ...plain, reason, maxWaiting, superseding };
    const target = wait.priority === undefined ? asked : { ...asked, mode: holdMode(asked, wait.priority) };
    const kept = plain.options.sticky && !acquireChannel.hasSubscribers && takeKept(target, wait);
    if (kept) return Promise.resolve(kept).then((entry) => taken(entry, target, wait));
    // The handle is that of the target.
    const by: Acquirer<HoldTarget<H>, JoinedEntry, H> = target.mode?.priority ? BY_PRIORITY : AS_HOLD;
    if (!acquireChannel.hasSubscribers) return acquire(target, wait, by);
    const call = { tries: false, signal: wait.signal };
    return traceAcquire(target, call, (traced) => acquire(traced, wait, by));
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Of a call with a priority. */
const holdMode = ({ options: { priorities } }: JoinTarget, level: number): LockMode =>
  prioritized(level, priorities?.agingMs ?? 1).hold;

/** The caller may have closed the session, or aborted its signal, right after its call: that ends it, like a call that waits. */
function taken<H extends HoldHandle>(
  entry: JoinedEntry,
  target: HoldTarget<H>,
  { signal }: CheckedLockWait,
): H {
  try {
    entry.lease.assertOpen();
    signal?.throwIfAborted();
  } catch (error) {
    queueOf(entry).leaveInBackground(entry);
    throw error;
  }
  return started(entry, target);
}

/** The short way of a sticky lock whose key its session keeps. Every other case, and each error of `acquire`, is left to the long way. */
function takeKept({ source, name, mode }: JoinTarget, { signal }: CheckedLockWait): JoinedEntry | undefined {
  const { services } = source;
  if (signal?.aborted || services.closed.aborted || enclosingConflict(services, name)) return undefined;
  return source.standing?.()?.locks?.known(name)?.takeKept(mode);
}

/** A hold if it needs no wait for a turn, else undefined. `timeoutMs` bounds the wait for etcd. */
export function tryAcquire<H extends HoldHandle>(
  target: HoldTarget<H>,
  wait: CheckedWait,
): Promise<H | undefined> {
  const made = (entry: JoinedEntry): H => started(entry, target);
  if (!acquireChannel.hasSubscribers) return tryEntry(target, wait, made);
  const call = { tries: true, signal: wait.signal };
  return traceAcquire(target, call, (traced) => tryEntry(traced, wait, (entry) => started(entry, traced)));
}

/** Like `tryAcquire()`, but resolves with what `made` makes of the entry. Leaves the queue again unless that is granted at once. */
export function tryEntry<R>(
  target: JoinTarget,
  { signal, timeoutMs = TRY_TIMEOUT_MS }: CheckedWait,
  made: (entry: JoinedEntry) => R,
): Promise<R | undefined> {
  return acquire<JoinTarget, JoinedEntry | undefined, R | undefined>(
    target,
    { signal, timeoutMs, rejoin: false },
    {
      join: tryJoin,
      made: (entry) => entry && made(entry),
      unwanted: (entry) => void (entry && queueOf(entry).leaveInBackground(entry)),
      tried: ({ name }) => `try lock "${name}"`,
    },
  );
}

/** A try does not wait in the queue, so no turn is lost when it begins again. */
function tryJoin(
  lease: Lease,
  target: JoinTarget,
  limitMs: number | undefined,
): TurnWaiter<JoinedEntry | undefined> {
  let gaveUp = false;
  const limits = { giveUpMs: limitMs ?? TRY_TIMEOUT_MS, again: () => !gaveUp };
  return {
    granted: LockTable.of(lease).queue(target.name).tryJoin(limits, target),
    joined: false,
    waitingFor: { name: target.name, revision: undefined },
    giveUp: () => void (gaveUp = true),
  };
}

/**
 * Throws if the session has ended since the grant, or before it, unnoticed because the process was suspended. The hold has
 * no events before `started`. `watched`: the key is watched from the grant on, for a hold that lasts, or that another client may
 * steal at any moment.
 */
export function holdOf<H extends HoldHandle>(entry: JoinedEntry, handle: HandleClass<H>, watched = false): H {
  const hold = new handle(queueOf(entry), entry, watched);
  const { lease } = entry;
  if (!lease.over) return hold;
  void hold.release();
  throw lease.signal.reason as Error;
}
