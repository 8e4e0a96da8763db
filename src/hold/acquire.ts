import { DeadlockError, EtcdUnavailableError, LockTimeoutError } from "../errors.js";
import type { WatchListener } from "../etcd/watch-hub.js";
import type { CheckedWait } from "../options/check.js";
import type { CheckedQueueWait } from "../options/lock.js";
import { type Ahead, readContendersAhead } from "../queue/contenders.js";
import type { JoinedEntry } from "../queue/entry.js";
import { LockTable } from "../queue/lock-table.js";
import type { JoinOptions, Queue } from "../queue/queue.js";
import { type Grant, unwatched, type Waiter } from "../queue/waiter.js";
import type { LeaseSource } from "../session/cluster.js";
import type { Lease } from "../session/lease.js";
import { acquireChannel } from "../telemetry/channels.js";
import type { Timer } from "../util/clock.js";
import { settleWithin } from "../util/settle.js";
import { type AcquireTarget, type LockAbout, traceAcquire } from "./events.js";
import { HoldHandle } from "./hold.js";
import { enclosingConflict, enclosingHold } from "./reentrancy.js";
import { type LeasedCall, withLease } from "./with-lease.js";

/** The last part of a wait, in which the queue is read so that a timeout can name the holder. */
const PROBE_MS = 500;
/** A read that has waited so long, and several times as long as the last answer took, counts as unanswered. */
const UNANSWERED_MS = 400;
const ROUND_TRIPS = 3;
const REJOINING = "its session had ended, and the next one was not used yet";

/** A call that waits in one queue or several. */
export interface TurnWaiter<T> {
  readonly granted: Promise<T>;
  /** The call has, or had, a place in the queue. */
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

/** A call that waits for its turn under one name or several. */
export abstract class TurnCall<T, R> implements LeasedCall<T, R> {
  #waiter: TurnWaiter<T> | undefined;
  #placed = false;

  constructor(private readonly wait: CheckedQueueWait) {}

  abstract get about(): AcquireTarget;
  /** Joins the queues. */
  protected abstract join(lease: Lease): TurnWaiter<T>;
  /** Releases what was granted after the caller gave up. */
  protected abstract releaseUnwanted(granted: T): void;
  abstract result(granted: T): R;

  get joined(): boolean {
    return this.#waiter?.joined ?? false;
  }

  /** Also with one of the sessions before: etcd has said that somebody is ahead. */
  get #hadPlace(): boolean {
    return (this.#placed ||= this.joined);
  }

  get rejoin(): boolean {
    return this.wait.rejoin;
  }

  /** @throws DeadlockError when this async context would wait for itself. @throws the reason of an aborted signal. */
  run(): Promise<R> {
    this.wait.signal?.throwIfAborted();
    const { source, name, names = [name] } = this.about;
    assertNoDeadlock(source, names);
    return withLease(source, this.wait, this);
  }

  begin(lease: Lease, left: CheckedWait): Promise<T> {
    this.#placed = this.#hadPlace;
    const waiter = (this.#waiter = this.join(lease));
    const probe = new HolderProbe(lease, waiter, left.timeoutMs);
    const settled = settleWithin(waiter.granted, left, lease.services, {
      onTimeout: () => probe.timeoutError(this.wait.timeoutMs ?? 0),
      onGiveUp: () => waiter.giveUp(),
      onUnwanted: (granted) => this.releaseUnwanted(granted),
    });
    return probe.during(settled);
  }

  overdue(error: unknown): unknown {
    if (error instanceof EtcdUnavailableError) return error;
    const { timeoutMs = 0 } = this.wait;
    const { failing, lastFailures } = this.#client.hosts;
    if (failing || !this.#hadPlace)
      return new EtcdUnavailableError(`open a session within ${timeoutMs} ms`, lastFailures);
    return new LockTimeoutError(this.about.name, timeoutMs, undefined, undefined, REJOINING);
  }

  get #client(): LeaseSource["services"]["client"] {
    return this.about.source.services.client;
  }
}

/** @throws DeadlockError when this async context would wait for itself. */
function assertNoDeadlock({ services }: LeaseSource, names: readonly string[]): void {
  for (const name of names) {
    const blocking = enclosingConflict(services, name);
    if (blocking === undefined) continue;
    const advice = enclosingHold(services, name)
      ? "; a Mutex can be entered again with { reentrant: true }"
      : "";
    const why = `would wait for "${blocking}", which this async context already holds${advice}`;
    throw new DeadlockError(name, `Lock "${name}" ${why}`);
  }
}

/** Reads the queue shortly before the time limit, so that a timeout can name the holder without delaying its caller. */
class HolderProbe {
  #name: string | undefined;
  #sentAt: number | undefined;
  #ahead: Ahead | undefined;
  #failure: unknown;
  readonly #timer: Timer | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly waiter: Pick<TurnWaiter<unknown>, "joined" | "waitingFor">,
    timeoutMs: number | undefined,
  ) {
    if (timeoutMs === undefined) return;
    const probeMs = Math.min(PROBE_MS, timeoutMs / 2);
    this.#timer = lease.services.clock.after(timeoutMs - probeMs, () => void this.#read(probeMs));
  }

  /** The same promise, or one that cancels the probe when it settles. */
  during<T>(settled: Promise<T>): Promise<T> {
    const timer = this.#timer;
    return timer ? settled.finally(() => timer.cancel()) : settled;
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
    const { leaseId, entries } = this.lease;
    const isOurs = (): boolean => [...entries()].some(({ revision }) => revision === holder.revision);
    return holder.leaseId !== leaseId || isOurs();
  }

  /** A wait whose streams have broken is not unanswered: its read was answered before, or was sent since. */
  #unanswered(): boolean {
    const { clock, client } = this.lease.services;
    if (this.#ahead !== undefined || this.#sentAt === undefined) return false;
    if (this.#failure !== undefined) return this.#failure instanceof EtcdUnavailableError;
    const waitedMs = clock.monotonic() - this.#sentAt;
    const { failing, roundTripMs } = client.hosts;
    return failing || waitedMs >= Math.max(UNANSWERED_MS, ROUND_TRIPS * roundTripMs);
  }

  #lockTimeout(timeoutMs: number): LockTimeoutError {
    const known = this.#known;
    return new LockTimeoutError(this.waiter.waitingFor.name, timeoutMs, known?.holder, known?.ahead);
  }

  #unavailable(timeoutMs: number): EtcdUnavailableError {
    const { lastFailures } = this.lease.services.client.hosts;
    const read = this.#failure instanceof EtcdUnavailableError ? this.#failure.members : lastFailures;
    const members = read.size > 0 ? read : lastFailures;
    return new EtcdUnavailableError(`lock "${this.waiter.waitingFor.name}" within ${timeoutMs} ms`, members);
  }

  /** What etcd has answered about the name that the call still waits for. */
  get #known(): Ahead | undefined {
    return this.#name === this.waiter.waitingFor.name ? this.#ahead : undefined;
  }

  async #read(probeMs: number): Promise<void> {
    const { services } = this.lease;
    const { name, revision } = this.waiter.waitingFor;
    const policy = { ...this.lease.policy("read the queue"), giveUpMs: probeMs, attemptMs: probeMs };
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

const TRY_TIMEOUT_MS = 5000;

/** The hold takes the watch over in the same turn of the event loop, so no event can arrive before. */
const NO_LISTENER: WatchListener = { created() {}, events() {}, interrupted() {}, refused() {} };

/** A queue to join, and with which leases and entry. */
export interface JoinTarget extends Omit<JoinOptions, keyof LockAbout>, AcquireTarget {}

/** The class of the handle for the caller: only that of an exclusive hold has a fence. */
type HandleClass<H extends HoldHandle> = new (queue: Queue, grant: Grant) => H;

/** A lock makes it once, for all of its calls. */
export interface HoldTarget<H extends HoldHandle> extends JoinTarget {
  readonly handle: HandleClass<H>;
}

/** A granted entry that is not a hold yet. */
export interface Acquired {
  readonly queue: Queue;
  readonly grant: Grant;
}

const acquired = (grant: Grant): Acquired => ({
  queue: LockTable.of(grant.entry.lease).queue(grant.entry.name),
  grant,
});

/** Waits in the queue of one name for its turn. */
abstract class NameCall<T extends JoinTarget, R> extends TurnCall<Grant, R> {
  constructor(
    protected readonly target: T,
    wait: CheckedQueueWait,
  ) {
    super(wait);
  }

  get about(): T {
    return this.target;
  }

  protected join(lease: Lease): Waiter {
    return LockTable.of(lease).queue(this.target.name).join(this.target);
  }

  protected releaseUnwanted(unwanted: Grant): void {
    const { queue, grant } = acquired(unwanted);
    void new HoldHandle(queue, grant).release();
  }
}

class EntryCall<R> extends NameCall<JoinTarget, R> {
  constructor(
    target: JoinTarget,
    wait: CheckedQueueWait,
    private readonly made: (granted: Acquired) => R,
  ) {
    super(target, wait);
  }

  result(grant: Grant): R {
    return this.made(acquired(grant));
  }
}

class HoldCall<H extends HoldHandle> extends NameCall<HoldTarget<H>, H> {
  result(grant: Grant): H {
    return started(grant, this.target);
  }
}

/** The hold that the caller gets. */
function started<H extends HoldHandle>(grant: Grant, target: HoldTarget<H>): H {
  const hold = holdOf(acquired(grant), target.handle);
  hold.started(target);
  return hold;
}

/** Resolves with what `made` makes of the entry, at once when its turn has come. */
export async function acquire<R>(
  target: JoinTarget,
  wait: CheckedQueueWait,
  made: (granted: Acquired) => R,
): Promise<R> {
  return new EntryCall(target, wait, made).run();
}

/**
 * Like `acquire()`, but resolves with a hold. `check` throws on bad options. It is not an async function: that would keep
 * one more suspended function per waiter, and a process may have thousands.
 */
export function acquireHold<H extends HoldHandle>(
  target: HoldTarget<H>,
  check: () => CheckedQueueWait,
): Promise<H> {
  try {
    const wait = check();
    return acquireChannel.hasSubscribers ? traceHold(target, wait) : new HoldCall(target, wait).run();
  } catch (error) {
    return Promise.reject(error);
  }
}

function traceHold<H extends HoldHandle>(target: HoldTarget<H>, wait: CheckedQueueWait): Promise<H> {
  const call = { tries: false, signal: wait.signal };
  return traceAcquire(target, call, (traced) => new HoldCall(traced, wait).run());
}

/** A hold if it needs no wait for a turn, else undefined. `timeoutMs` bounds the wait for etcd. */
export function tryAcquire<H extends HoldHandle>(
  target: HoldTarget<H>,
  wait: CheckedWait,
): Promise<H | undefined> {
  if (!acquireChannel.hasSubscribers) return tryHold(target, wait);
  const call = { tries: true, signal: wait.signal };
  return traceAcquire(target, call, (traced) => tryHold(traced, wait));
}

const tryHold = <H extends HoldHandle>(target: HoldTarget<H>, wait: CheckedWait): Promise<H | undefined> =>
  tryEntry(target, wait, ({ grant }) => started(grant, target));

/** Like `tryAcquire()`, but resolves with what `made` makes of the entry. */
export async function tryEntry<R>(
  target: JoinTarget,
  { signal, timeoutMs = TRY_TIMEOUT_MS }: CheckedWait,
  made: (granted: Acquired) => R,
): Promise<R | undefined> {
  signal?.throwIfAborted();
  return withLease(target.source, { signal, timeoutMs }, new TryCall(target, made));
}

/** Leaves the queue again unless its entry is granted at once. */
class TryCall<R> implements LeasedCall<JoinedEntry | undefined, R | undefined> {
  /** It does not wait in the queue, so no turn is lost when it begins again. */
  readonly joined = false;
  readonly rejoin = false;

  constructor(
    private readonly target: JoinTarget,
    private readonly made: (granted: Acquired) => R,
  ) {}

  get about(): JoinTarget {
    return this.target;
  }

  begin(lease: Lease, left: CheckedWait): Promise<JoinedEntry | undefined> {
    const { services } = lease;
    const queue = LockTable.of(lease).queue(this.target.name);
    let gaveUp = false;
    const limits = { giveUpMs: left.timeoutMs ?? TRY_TIMEOUT_MS, again: () => !gaveUp };
    return settleWithin(queue.tryJoin(limits, this.target), left, services, {
      onTimeout: () =>
        new EtcdUnavailableError(`try lock "${queue.name}"`, services.client.hosts.lastFailures),
      onGiveUp: () => (gaveUp = true),
      onUnwanted: (unwanted) => void (unwanted && queue.leave(unwanted).catch(() => undefined)),
    });
  }

  result(entry: JoinedEntry | undefined): R | undefined {
    return entry && this.made(acquired(unwatched(entry)));
  }

  overdue(error: unknown): unknown {
    return error;
  }
}

/** Watches the key from the grant on: for a hold that lasts, or that another client may steal at any moment. */
export function watched({ queue, grant }: Acquired): Acquired {
  if (grant.ownWatch) return { queue, grant };
  const { watches } = queue.lease.services;
  const ownWatch = watches.watch({ key: grant.entry.key, events: "DELETE" }, NO_LISTENER);
  return { queue, grant: { ...grant, ownWatch } };
}

/**
 * Throws if the session has ended since the grant, or before it, unnoticed because the process was suspended. The hold has
 * no events before `started`.
 */
export function holdOf<H extends HoldHandle>({ queue, grant }: Acquired, handle: HandleClass<H>): H {
  const hold = new handle(queue, grant);
  const { lease } = queue;
  if (!lease.over) return hold;
  void hold.release();
  throw lease.signal.reason as Error;
}
