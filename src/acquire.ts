import { blockedHere, heldHere } from "./context.js";
import {
  DeadlockError,
  EtcdUnavailableError,
  LockTimeoutError,
  SessionClosedError,
  SessionLostError,
} from "./errors.js";
import type { WatchListener } from "./etcd/watch.js";
import { HeldPlace } from "./hold.js";
import type { Lease } from "./lease.js";
import type { CheckedWait } from "./options.js";
import { readAhead } from "./places.js";
import { Queue, type Entry } from "./queue.js";
import type { LeaseSource } from "./source.js";
import type { Clock } from "./time.js";
import { settleWithin } from "./wait.js";
import type { Grant, Waiter } from "./waiter.js";

/** A timeout names the holder if etcd says it within this time. */
const ASK_HOLDER_MS = 500;
const TRY_TIMEOUT_MS = 5000;

/** Before the hold takes the watch over, in the same turn of the event loop, there is nothing to hear. */
const NOBODY: WatchListener = { created() {}, event() {}, moved() {}, refused() {} };

/** A place whose turn it is, not made a hold yet. */
export interface Acquired {
  readonly queue: Queue;
  readonly grant: Grant;
}

/** Waits in the queue of `name` until it is our turn. `check` throws on bad options. */
export async function acquire(
  source: LeaseSource,
  name: string,
  check: () => CheckedWait,
  entry?: Entry,
): Promise<Acquired> {
  const wait = check();
  const { connection } = source;
  wait.signal?.throwIfAborted();
  assertFree(source, [name]);
  const grant = await withLease(source, wait, (lease, left) => {
    const queue = Queue.of(lease, name);
    const waiter = queue.enter(entry);
    const settled = settleWithin(waiter.granted, left, connection, {
      onTimeout: () => timeout(lease, name, waiter, wait.timeoutMs ?? 0),
      onGiveUp: () => waiter.giveUp(),
      onUnwanted: (unwanted) => void new HeldPlace(queue, unwanted).release(),
    });
    return { settled, joined: () => waiter.joined };
  });
  return { queue: Queue.of(grant.place.lease, name), grant };
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
  return (
    place && {
      queue: Queue.of(place.lease, name),
      grant: { place, ownWatch: undefined, deletedAt: undefined },
    }
  );
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

/** @throws DeadlockError when this async context would wait for itself. */
export function assertFree({ connection }: LeaseSource, names: readonly string[]): void {
  for (const name of names) {
    const blocking = blockedHere(connection, name);
    if (blocking === undefined) continue;
    const advice = heldHere(connection, name)
      ? "; a Mutex can be entered again with { reentrant: true }"
      : "";
    const why = `would wait for "${blocking}", which this async context already holds${advice}`;
    throw new DeadlockError(name, `Lock "${name}" ${why}`);
  }
}

/** What a call does with a lease. */
interface Attempt<T> {
  readonly settled: Promise<T>;
  /** It had a place in a queue, which is lost with the session: the caller hears of that. */
  joined(): boolean;
}

/**
 * Runs `begin` with a lease that takes new calls, and with what opening its session has left of the time limit. The
 * session may have ended unnoticed, as when its lease was revoked: unless the call had joined a queue by then, it is
 * begun once more, with the next session of a cluster. A session of the caller's own only says again that it has ended.
 */
export async function withLease<T>(
  source: LeaseSource,
  wait: CheckedWait,
  begin: (lease: Lease, left: CheckedWait) => Attempt<T>,
): Promise<T> {
  const left = timeLeft(source.connection.clock, wait.timeoutMs);
  const limits = (): CheckedWait => ({ signal: wait.signal, timeoutMs: left() });
  let attempt: Attempt<T> | undefined;
  const run = async (lease: Lease): Promise<T> => {
    lease.assertOpen();
    wait.signal?.throwIfAborted();
    attempt = begin(lease, limits());
    return attempt.settled;
  };
  try {
    return await run(await source.lease(wait));
  } catch (error) {
    const ended = error instanceof SessionLostError || error instanceof SessionClosedError;
    if (!ended || attempt?.joined()) throw error;
  }
  return run(await source.lease(limits()));
}

/** What is left of a time limit that earlier steps may have used up in part. */
export function timeLeft(clock: Clock, timeoutMs: number | undefined): () => number | undefined {
  const start = clock.monotonic();
  return () => timeoutMs && Math.max(1, Math.ceil(timeoutMs - (clock.monotonic() - start)));
}

/** Names who holds, if etcd still says it, and how many are ahead of the place of that create revision. */
export async function timeout(
  lease: Lease,
  name: string,
  { revision }: Pick<Waiter, "revision">,
  timeoutMs: number,
): Promise<LockTimeoutError> {
  const policy = { ...lease.policy("read the queue"), giveUpMs: ASK_HOLDER_MS, attemptMs: ASK_HOLDER_MS };
  const asking = readAhead(lease.connection, name, revision, policy);
  const limit = { signal: undefined, timeoutMs: ASK_HOLDER_MS };
  const onTimeout = (): Error => new Error("too late to be told");
  const queue = await settleWithin(asking, limit, lease.connection, { onTimeout }).catch(() => undefined);
  return new LockTimeoutError(name, timeoutMs, queue?.holder, queue?.ahead);
}
