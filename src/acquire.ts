import { EtcdUnavailableError } from "./errors.js";
import type { WatchListener } from "./etcd/watch.js";
import { HeldPlace } from "./hold.js";
import type { CheckedWait } from "./options.js";
import { Queue, type Entry } from "./queue.js";
import type { LeaseSource } from "./source.js";
import { settleWithin } from "./wait.js";
import { waitForTurn } from "./wait-for-turn.js";
import { unwatched, type Grant, type Waiter } from "./waiter.js";
import { withLease } from "./with-lease.js";

const TRY_TIMEOUT_MS = 5000;

/** Before the hold takes the watch over, in the same turn of the event loop, there is nothing to hear. */
const NOBODY: WatchListener = { created() {}, event() {}, moved() {}, refused() {} };

/** A place whose turn it is, not made a hold yet. */
export interface Acquired {
  readonly queue: Queue;
  readonly grant: Grant;
}

const acquired = (grant: Grant): Acquired => ({
  queue: Queue.of(grant.place.lease, grant.place.name),
  grant,
});

/** Waits in the queue of `name` until it is our turn. `check` throws on bad options. */
export async function acquire(
  source: LeaseSource,
  name: string,
  check: () => CheckedWait,
  entry?: Entry,
): Promise<Acquired> {
  const grant = await waitForTurn<Grant, Waiter>(source, check(), {
    names: [name],
    enter: (lease) => Queue.of(lease, name).enter(entry),
    waitedFor: ({ revision }) => ({ name, revision }),
    giveBack: (unwanted) => void new HeldPlace(acquired(unwanted).queue, unwanted).release(),
  });
  return acquired(grant);
}

/** The same as a hold. Each waiter costs one suspended function, `acquire`: a process may have thousands. */
export const acquireHold = (...asked: Parameters<typeof acquire>): Promise<HeldPlace> =>
  acquire(...asked).then(holdOf);

/** A hold that needs not be waited for, or undefined. `timeoutMs` bounds the wait for etcd. */
export async function tryAcquire(
  source: LeaseSource,
  name: string,
  wait: CheckedWait,
  entry?: Entry,
): Promise<HeldPlace | undefined> {
  const acquired = await tryPlace(source, name, wait, entry);
  return acquired && holdOf(acquired);
}

/** The same before it is made a hold. */
export async function tryPlace(
  source: LeaseSource,
  name: string,
  { signal, timeoutMs = TRY_TIMEOUT_MS }: CheckedWait,
  entry?: Entry,
): Promise<Acquired | undefined> {
  const { connection } = source;
  signal?.throwIfAborted();
  const place = await withLease(source, { signal, timeoutMs }, (lease, left) => {
    const queue = Queue.of(lease, name);
    let gaveUp = false;
    const entering = queue.tryEnter({ giveUpMs: left.timeoutMs ?? timeoutMs, again: () => !gaveUp }, entry);
    const settled = settleWithin(entering, left, connection, {
      onTimeout: () => new EtcdUnavailableError(`try lock "${name}"`, connection.members.silence),
      onGiveUp: () => (gaveUp = true),
      onUnwanted: (unwanted) => void (unwanted && queue.leave(unwanted).catch(() => undefined)),
    });
    // What it has joined it has not waited for: nobody's turn is lost with it.
    return { settled, joined: () => false };
  });
  return place && acquired(unwatched(place));
}

/** Watches the key from the grant on: for a hold that lasts, or that others may take at any moment. */
export function watched({ queue, grant }: Acquired): Acquired {
  if (grant.ownWatch) return { queue, grant };
  const { watches } = queue.lease.connection;
  const ownWatch = watches.watch({ key: grant.place.key, events: "DELETE" }, NOBODY);
  return { queue, grant: { ...grant, ownWatch } };
}

/** The session may have ended since the grant, or, unseen, during a pause of the process before it. */
export function holdOf({ queue, grant }: Acquired): HeldPlace {
  const hold = new HeldPlace(queue, grant);
  const { lease } = queue;
  if (!lease.over) return hold;
  void hold.release();
  throw lease.signal.reason as Error;
}
