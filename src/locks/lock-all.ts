import { MultiLockHandle, type MultiLock } from "./multi-lock.js";
import type { HoldHandle } from "../hold/hold.js";
import type { Lease } from "../session/lease.js";
import { MultiWaiter } from "./multi-wait.js";
import { acquireChannel } from "../diagnostics/channels.js";
import { checkNames } from "../options/check.js";
import { checkLock, LOCK_OPTIONS } from "../options/lock.js";
import { checkQueueWait, QUEUE_WAIT_OPTIONS, type CheckedQueueWait } from "../options/queue-wait.js";
import type { LockOptions, QueueWaitOptions } from "../session/session-options.js";
import { leaseSourceOf, type SessionSource } from "../session/session-source.js";
import { traceAcquire, type AcquireTarget } from "../hold/trace-acquire.js";
import { TurnCall } from "../hold/wait-for-turn.js";

export type { MultiLock } from "./multi-lock.js";

/**
 * Locks all of `names` at once. One transaction puts an entry into each queue, so the order is the same in every queue, and
 * callers that lock the same names in any order never wait for each other in a circle. Excludes, and is excluded by,
 * every `Mutex`, reader and writer of one of the names. If one entry is lost while waiting, all are removed and
 * joined anew, behind those that joined in the meantime; if one is lost while held, all are lost.
 * `maxHoldMs` and `warnHoldMs` apply to the whole, from the moment when all names are held.
 * To take several locks, call this once; never take one lock after the other.
 * On abort: rejects at once with the signal's own reason; the queue entries are removed in the background.
 * @param names 1 to 30, each valid for a Mutex; no duplicates, none under another one, such as "a/b" under "a".
 * @param options limits of the wait, and the options that a Mutex takes, such as `label`.
 * @throws {LockTimeoutError} after `timeoutMs`; it names the first lock that was not acquired yet.
 * @throws {DeadlockError} in an async context that already holds one of the names, or a name under one of them.
 * @throws {SessionLostError | SessionClosedError} when the session ends while waiting without `rejoin`.
 * @throws {KindMismatchError} when one entry would wait for one of another kind, or of a nested name: see docs/kinds.md.
 * @throws {EtcdUnavailableError} when no session could be opened, or etcd had fallen silent when `timeoutMs` passed.
 * @throws {EtcdRefusedError} when etcd rejects the request.
 * @throws {TypeError | RangeError} on bad arguments.
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
  if (!acquireChannel.hasSubscribers) return new AllCall(target, wait).run();
  const call = { tries: false, signal: wait.signal };
  return traceAcquire(target, call, (traced) => new AllCall(traced, wait).run());
}

interface AllTarget extends AcquireTarget {
  readonly names: readonly string[];
}

class AllCall extends TurnCall<readonly HoldHandle[], MultiLockHandle> {
  constructor(
    private readonly target: AllTarget,
    wait: CheckedQueueWait,
  ) {
    super(wait);
  }

  get about(): AllTarget {
    return this.target;
  }

  protected join(lease: Lease): MultiWaiter {
    return new MultiWaiter(lease, this.target.names, this.target.onAhead);
  }

  protected releaseUnwanted(holds: readonly HoldHandle[]): void {
    for (const hold of holds) void hold.release();
  }

  result(holds: readonly HoldHandle[]): MultiLockHandle {
    const lock = new MultiLockHandle(holds);
    lock.started(this.target);
    return lock;
  }
}
