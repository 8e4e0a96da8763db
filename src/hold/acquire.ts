import { EtcdUnavailableError } from "../errors.js";
import type { WatchListener } from "../etcd/watch/hub.js";
import { HoldHandle } from "./hold.js";
import type { LockAbout } from "./events.js";
import type { CheckedWait } from "../options/check.js";
import type { CheckedQueueWait } from "../options/queue-wait.js";
import { acquireChannel } from "../diagnostics/channels.js";
import type { JoinOptions, Queue } from "../queue/queue.js";
import { LockTable } from "../queue/lock-table.js";
import { traceAcquire, type AcquireTarget } from "./trace-acquire.js";
import type { Lease } from "../session/lease.js";
import type { JoinedEntry } from "../queue/entry.js";
import { settleWithin } from "../async/settle-within.js";
import { TurnCall } from "./wait-for-turn.js";
import { unwatched, type Grant, type Waiter } from "../queue/waiter.js";
import { withLease, type LeasedCall } from "./with-lease.js";

const TRY_TIMEOUT_MS = 5000;

/** The hold takes the watch over in the same turn of the event loop, so no event can arrive before. */
const NO_LISTENER: WatchListener = { created() {}, events() {}, interrupted() {}, refused() {} };

/** A queue to join, and with which leases and entry. */
export interface JoinTarget extends Omit<JoinOptions, keyof LockAbout>, AcquireTarget {}

/** The class of the handle for the caller: only that of an exclusive hold has a fence. */
export type HandleClass<H extends HoldHandle> = new (queue: Queue, grant: Grant) => H;

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
      onTimeout: () => new EtcdUnavailableError(`try lock "${queue.name}"`, services.client.lastFailures),
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
