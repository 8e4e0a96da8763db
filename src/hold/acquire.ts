import { EtcdUnavailableError } from "../errors.js";
import type { WatchListener } from "../etcd/watch/hub.js";
import { HoldHandle } from "./hold.js";
import type { CheckedWait } from "../options/check.js";
import { Queue, type JoinOptions } from "../queue/queue.js";
import type { LeaseSource } from "../session/session-source.js";
import type { Lease } from "../session/lease.js";
import type { QueueEntry } from "../queue/entry.js";
import { settleWithin } from "../async/settle-within.js";
import { TurnCall } from "./wait-for-turn.js";
import { unwatched, type Grant, type Waiter } from "../queue/waiter.js";
import { withLease } from "./with-lease.js";

const TRY_TIMEOUT_MS = 5000;

/** Before the hold takes the watch over, in the same turn of the event loop, there is nothing to hear. */
const NO_LISTENER: WatchListener = { created() {}, event() {}, interrupted() {}, refused() {} };

/** A place whose turn it is, not made a hold yet. */
export interface Acquired {
  readonly queue: Queue;
  readonly grant: Grant;
}

const acquired = (grant: Grant): Acquired => ({
  queue: Queue.of(grant.entry.lease, grant.entry.name),
  grant,
});

/** Waits in the queue of `name` until it is our turn. */
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
    return Queue.of(lease, this.name).join(this.entry);
  }

  protected giveBack(unwanted: Grant): void {
    void new HoldHandle(acquired(unwanted).queue, unwanted).release();
  }

  result(grant: Grant): R {
    return this.resultOf(acquired(grant));
  }
}

/** A place of `name`, when it is our turn. */
export async function acquire(
  source: LeaseSource,
  name: string,
  wait: CheckedWait,
  entry?: JoinOptions,
): Promise<Acquired> {
  return new NameCall(source, wait, name, entry, (place) => place).run();
}

/** The same as a hold. `check` throws on bad options. It suspends no function of its own: a process may have thousands of waiters. */
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

/** A hold that needs not be waited for, or undefined. `timeoutMs` bounds the wait for etcd. */
export async function tryAcquire(
  source: LeaseSource,
  name: string,
  wait: CheckedWait,
  entry?: JoinOptions,
): Promise<HoldHandle | undefined> {
  const acquired = await tryPlace(source, name, wait, entry);
  return acquired && holdOf(acquired);
}

/** The same before it is made a hold. */
export async function tryPlace(
  source: LeaseSource,
  name: string,
  { signal, timeoutMs = TRY_TIMEOUT_MS }: CheckedWait,
  entry?: JoinOptions,
): Promise<Acquired | undefined> {
  const { connection } = source;
  signal?.throwIfAborted();
  const begin = (lease: Lease, left: CheckedWait): Promise<QueueEntry | undefined> => {
    const queue = Queue.of(lease, name);
    let gaveUp = false;
    const entering = queue.tryJoin({ giveUpMs: left.timeoutMs ?? timeoutMs, again: () => !gaveUp }, entry);
    return settleWithin(entering, left, connection, {
      onTimeout: () => new EtcdUnavailableError(`try lock "${name}"`, connection.client.lastFailures),
      onGiveUp: () => (gaveUp = true),
      onUnwanted: (unwanted) => void (unwanted && queue.leave(unwanted).catch(() => undefined)),
    });
  };
  // It has not waited for the place that it joined, so no turn is lost with it.
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

/** Watches the key from the grant on: for a hold that lasts, or that others may take at any moment. */
export function watched({ queue, grant }: Acquired): Acquired {
  if (grant.ownWatch) return { queue, grant };
  const { watches } = queue.lease.connection;
  const ownWatch = watches.watch({ key: grant.entry.key, events: "DELETE" }, NO_LISTENER);
  return { queue, grant: { ...grant, ownWatch } };
}

/** The session may have ended since the grant, or, unseen, during a pause of the process before it. */
export function holdOf({ queue, grant }: Acquired): HoldHandle {
  const hold = new HoldHandle(queue, grant);
  const { lease } = queue;
  if (!lease.over) return hold;
  void hold.release();
  throw lease.signal.reason as Error;
}
