import { blockedHere } from "./context.js";
import { DeadlockError, LockTimeoutError } from "./errors.js";
import { HeldPlace } from "./hold.js";
import type { Lease } from "./lease.js";
import type { CheckedWait } from "./options.js";
import { readAhead } from "./places.js";
import { Queue } from "./queue.js";
import type { LeaseSource } from "./source.js";
import type { Clock } from "./time.js";
import { settleWithin } from "./wait.js";
import type { Grant, Waiter } from "./waiter.js";

/** A timeout names the holder if etcd says it within this time. */
const ASK_HOLDER_MS = 500;

/** A place whose turn it is, not made a hold yet. */
export interface Acquired {
  readonly queue: Queue;
  readonly grant: Grant;
}

/** Waits in the queue of `name` until it is our turn. `value` is written under the place's key instead of its owner. */
export async function acquire(
  source: LeaseSource,
  name: string,
  wait: CheckedWait,
  value?: string,
): Promise<Acquired> {
  const { connection } = source;
  const left = timeLeft(connection.clock, wait.timeoutMs);
  wait.signal?.throwIfAborted();
  const blocking = blockedHere(connection, name);
  if (blocking !== undefined) throw new DeadlockError(name, blocking);
  const lease = await source.lease(wait);
  lease.assertOpen();
  wait.signal?.throwIfAborted();
  const queue = Queue.of(lease, name);
  const waiter = queue.enter(value === undefined ? {} : { value });
  const grant = await settleWithin(waiter.granted, { signal: wait.signal, timeoutMs: left() }, connection, {
    onTimeout: () => timeout(lease, name, waiter, wait.timeoutMs ?? 0),
    onGiveUp: () => waiter.giveUp(),
    onUnwanted: (unwanted) => void new HeldPlace(queue, unwanted).release(),
  });
  return { queue, grant };
}

/** The session may have ended since the grant, or, unseen, during a pause of the process before it. */
export function holdOf({ queue, grant }: Acquired): HeldPlace {
  const hold = new HeldPlace(queue, grant);
  const { lease } = queue;
  if (!lease.over) return hold;
  void hold.release();
  throw lease.signal.reason as Error;
}

/** What is left of a time limit that opening a session may have used up in part. */
export function timeLeft(clock: Clock, timeoutMs: number | undefined): () => number | undefined {
  const start = clock.monotonic();
  return () => timeoutMs && Math.max(1, timeoutMs - (clock.monotonic() - start));
}

async function timeout(
  lease: Lease,
  name: string,
  { revision }: Waiter,
  timeoutMs: number,
): Promise<LockTimeoutError> {
  const policy = { ...lease.policy("read the queue"), giveUpMs: ASK_HOLDER_MS, attemptMs: ASK_HOLDER_MS };
  const asking = readAhead(lease.connection, name, revision, policy);
  const limit = { signal: undefined, timeoutMs: ASK_HOLDER_MS };
  const onTimeout = (): Error => new Error("too late to be told");
  const queue = await settleWithin(asking, limit, lease.connection, { onTimeout }).catch(() => undefined);
  return new LockTimeoutError(name, timeoutMs, queue?.holder, queue?.ahead);
}
