import { EtcdUnavailableError } from "../errors.js";
import type { WatchListener } from "../etcd/watch/hub.js";
import { HoldHandle } from "./hold.js";
import type { CheckedWait } from "../options/check.js";
import type { JoinOptions, Queue } from "../queue/queue.js";
import { LockTable } from "../queue/lock-table.js";
import type { LeaseSource } from "../session/session-source.js";
import type { Lease } from "../session/lease.js";
import type { JoinedEntry } from "../queue/entry.js";
import { settleWithin } from "../async/settle-within.js";
import { TurnCall } from "./wait-for-turn.js";
import { unwatched, type Grant, type Waiter } from "../queue/waiter.js";
import { withLease } from "./with-lease.js";

const TRY_TIMEOUT_MS = 5000;

/** The hold takes the watch over in the same turn of the event loop, so no event can arrive before. */
const NO_LISTENER: WatchListener = { created() {}, event() {}, interrupted() {}, refused() {} };

/** A granted entry that is not a hold yet. */
export interface Acquired {
  readonly queue: Queue;
  readonly grant: Grant;
}

const acquired = (grant: Grant): Acquired => ({
  queue: LockTable.of(grant.entry.lease).queue(grant.entry.name),
  grant,
});

/** Waits in the queue of `name` for its turn. */
class NameCall<R> extends TurnCall<Grant, R> {
  constructor(
    source: LeaseSource,
    wait: CheckedWait,
    private readonly name: string,
    private readonly entry: JoinOptions | undefined,
    private readonly resultOf: (acquired: Acquired) => R,
  ) {
    super(source, wait);
  }

  protected get names(): readonly string[] {
    return [this.name];
  }

  protected enter(lease: Lease): Waiter {
    return LockTable.of(lease).queue(this.name).join(this.entry);
  }

  protected giveBack(unwanted: Grant): void {
    void new HoldHandle(acquired(unwanted).queue, unwanted).release();
  }

  result(grant: Grant): R {
    return this.resultOf(acquired(grant));
  }
}

/** Resolves with an entry of `name` when its turn has come. */
export async function acquire(
  source: LeaseSource,
  name: string,
  wait: CheckedWait,
  entry?: JoinOptions,
): Promise<Acquired> {
  return new NameCall(source, wait, name, entry, (place) => place).run();
}

/**
 * Like `acquire()`, but resolves with a hold. `check` throws on bad options. It is not an async function: that would keep
 * one more suspended function per waiter, and a process may have thousands.
 */
export function acquireHold(
  source: LeaseSource,
  name: string,
  check: () => CheckedWait,
  entry?: JoinOptions,
): Promise<HoldHandle> {
  try {
    return new NameCall(source, check(), name, entry, holdOf).run();
  } catch (error) {
    return Promise.reject(error);
  }
}

/** A hold if it needs no wait for a turn, else undefined. `timeoutMs` bounds the wait for etcd. */
export async function tryAcquire(
  source: LeaseSource,
  name: string,
  wait: CheckedWait,
  entry?: JoinOptions,
): Promise<HoldHandle | undefined> {
  const acquired = await tryPlace(source, name, wait, entry);
  return acquired && holdOf(acquired);
}

/** Like `tryAcquire()`, but the entry is not made a hold yet. */
export async function tryPlace(
  source: LeaseSource,
  name: string,
  { signal, timeoutMs = TRY_TIMEOUT_MS }: CheckedWait,
  entry?: JoinOptions,
): Promise<Acquired | undefined> {
  const { connection } = source;
  signal?.throwIfAborted();
  const begin = (lease: Lease, left: CheckedWait): Promise<JoinedEntry | undefined> => {
    const queue = LockTable.of(lease).queue(name);
    let gaveUp = false;
    const entering = queue.tryJoin({ giveUpMs: left.timeoutMs ?? timeoutMs, again: () => !gaveUp }, entry);
    return settleWithin(entering, left, connection, {
      onTimeout: () => new EtcdUnavailableError(`try lock "${name}"`, connection.client.lastFailures),
      onGiveUp: () => (gaveUp = true),
      onUnwanted: (unwanted) => void (unwanted && queue.leave(unwanted).catch(() => undefined)),
    });
  };
  // The call does not wait in the queue, so no turn is lost when it begins once more.
  return withLease(
    source,
    { signal, timeoutMs },
    {
      begin,
      joined: false,
      result: (entry) => entry && acquired(unwatched(entry)),
      failure: (error) => error,
    },
  );
}

/** Watches the key from the grant on: for a hold that lasts, or that another client may steal at any moment. */
export function watched({ queue, grant }: Acquired): Acquired {
  if (grant.ownWatch) return { queue, grant };
  const { watches } = queue.lease.connection;
  const ownWatch = watches.watch({ key: grant.entry.key, events: "DELETE" }, NO_LISTENER);
  return { queue, grant: { ...grant, ownWatch } };
}

/** Throws if the session has ended since the grant, or before it, unnoticed because the process was suspended. */
export function holdOf({ queue, grant }: Acquired): HoldHandle {
  const hold = new HoldHandle(queue, grant);
  const { lease } = queue;
  if (!lease.over) return hold;
  void hold.release();
  throw lease.signal.reason as Error;
}
