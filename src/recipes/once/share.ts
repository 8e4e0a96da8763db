// A value that one process computes for all: a run like those of `once`, whose result is a key of its own, so that it stays there while it
// is computed anew. etcd deletes it by its lease: no clock of a process decides how old a value is.
//
//   key               lease                         there:
//   NAME//*run        for ttlMs + staleMs           the last run: who computes now, or why that failed
//   NAME//*value      for ttlMs + staleMs           its result, after a success
//   NAME//*fresh      for ttlMs, if staleMs > 0     the value is younger than ttlMs
import type { KeyValue, Operation } from "../../etcd/port.js";
import { LockTimeoutError, RunFailedError } from "../../errors.js";
import { checkFunction, checkInteger, checkName } from "../../base/options/check.js";
import { type CheckedLock, checkLock, checkQueueWait, QUEUE_WAIT_OPTIONS } from "../../base/options/lock.js";
import { newController } from "../../base/util/abort.js";
import { inOwnContext, tellOutside } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { assertNoDeadlock } from "../../lock/hold/acquire.js";
import type { AcquireTarget } from "../../lock/hold/events.js";
import type { Lock } from "../../lock/hold/hold.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { type Mark, type MarkKey, parseMark, putMark, resultOf } from "./marks.js";
import { type Ended, NO_MARK, Plan, type PlanOptions, type PlanParts, type Verdict } from "./plan.js";
import { claimed, SlotRun } from "./run.js";
import { MarkSpace } from "./slots.js";

/** etcd raises the TTL of a lease to 2 s, by its default. */
const MIN_TTL_MS = 2000;
const MAX_MS = 366 * 86_400_000;
/** Of etcd, for the claim of a refresh. */
const REFRESH_TIMEOUT_MS = 5000;
const SHARE_OPTIONS = ["ttlMs", "staleMs", "onRefreshError", "label"] as const;

export interface ShareOptions extends WaitOptions {
  /**
   * How long a value is given to others: milliseconds, 2000 to 366 days. It ends up to an eighth sooner, by the clock of etcd, which
   * counts in whole seconds; and later only after an election of etcd's leader, which begins all leases anew.
   */
  readonly ttlMs: number;
  /**
   * So many milliseconds longer, the old value is given at once, while one process computes the new one: 0 to 366 days.
   * @default 0
   */
  readonly staleMs?: number | undefined;
  /** Gets what `compute` threw when it was called for a value that is stale: no call waits for that. @default none */
  readonly onRefreshError?: ((error: unknown) => void) | undefined;
  /** As in `LockOptions`. @default none */
  readonly label?: string | undefined;
}

interface CheckedShare {
  readonly ttlMs: number;
  readonly staleMs: number;
  readonly lock: CheckedLock;
  readonly onRefreshError: ((error: unknown) => void) | undefined;
}

/** How this call runs it: to wait for the value, or only if nobody else does. */
const WAITS: PlanOptions = {
  ...{
    rerun: "if_failed",
    ifRunning: "wait",
    skips: false,
    keepsResult: true,
    sharesFailures: true,
    fingerprint: undefined,
  },
};
const REFRESHES: PlanOptions = { ...WAITS, ifRunning: "skip", skips: true };

class SharePlan extends Plan {
  readonly at: MarkKey;
  readonly #value: MarkKey;
  readonly #fresh: MarkKey | undefined;
  override readonly lifetimes;

  constructor(key: string, { ttlMs, staleMs }: CheckedShare, parts: PlanParts) {
    super(key, parts);
    const space = MarkSpace.of(parts.services, key);
    this.at = space.shared("run");
    this.#value = space.shared("value");
    this.#fresh = staleMs > 0 ? space.shared("fresh") : undefined;
    const all = { ms: ttlMs + staleMs, atLeast: false };
    this.lifetimes = this.#fresh ? [all, { ms: ttlMs, atLeast: false }] : [all];
  }

  get what(): string {
    return `the value of "${this.lock}"`;
  }

  /** For the value and, if it may be stale, its freshness. */
  reads(): readonly (MarkKey & { readonly keysOnly?: true })[] {
    return [this.#value, ...(this.#fresh ? [{ ...this.#fresh, keysOnly: true } as const] : [])];
  }

  /** What `reads` have found. */
  found([values = [], fresh]: readonly (readonly KeyValue[])[]):
    { readonly kv: KeyValue; readonly isFresh: boolean } | undefined {
    const [kv] = values;
    return kv && { kv, isFresh: fresh === undefined || fresh.length > 0 };
  }

  override mayRun(found: Verdict): boolean {
    return found.state !== "done" || found.run.failed;
  }

  override evidence(): readonly Operation[] {
    return [...super.evidence(), ...this.reads().map((each) => ({ kind: "range", ...each }) as const)];
  }

  protected override judge([marks = [], oldest = [], ...found]: readonly (readonly KeyValue[])[]) {
    const value = this.found(found);
    const [kv] = marks;
    const isOver = kv !== undefined && parseMark(kv)?.state === "done";
    return {
      last: value?.isFresh ? value.kv : kv,
      seen: { ...NO_MARK, mark: kv?.modRevision ?? 0n },
      oldest,
      state: isOver && !value?.isFresh ? ("free" as const) : undefined,
    };
  }

  protected override ends({ mark, leases: [leaseId = 0n, freshLease] }: Ended): readonly Operation[] {
    const { result, ...run } = mark;
    return [
      putMark(this.at, run, leaseId),
      ...(result ? [putMark(this.#value, mark, leaseId)] : []),
      ...(result && this.#fresh && freshLease !== undefined
        ? [{ kind: "put", ...this.#fresh, value: "", leaseId: freshLease } as const]
        : []),
    ];
  }
}

/** A call in this process, which all callers of the same key share. */
class Flight<T> {
  readonly value: Promise<T>;
  readonly #stop = newController();
  #callers = 0;

  /** `onOver`: no further caller may join. */
  constructor(
    start: (signal: AbortSignal) => Promise<T>,
    private readonly onOver: () => void,
  ) {
    this.value = start(this.#stop.signal);
    this.value.then(onOver, onOver);
  }

  /** When all of them have given up, nobody waits any longer; a computation that has begun goes on. */
  join({ signal, timeoutMs }: WaitOptions, key: string, services: LeaseSource["services"]): Promise<T> {
    this.#callers++;
    return settleWithin(this.value, { signal, timeoutMs }, services, {
      onTimeout: () =>
        new LockTimeoutError(key, timeoutMs ?? 0, undefined, undefined, "its value was still being computed"),
      onGiveUp: () => {
        if (--this.#callers > 0) return;
        this.onOver();
        this.#stop.abort();
      },
    });
  }
}

const flights = new WeakMap<LeaseSource["services"], Map<string, Flight<unknown>>>();

function flightsOf(services: LeaseSource["services"]): Map<string, Flight<unknown>> {
  let known = flights.get(services);
  if (known === undefined) flights.set(services, (known = new Map<string, Flight<unknown>>()));
  return known;
}

/**
 * Resolves with a value that one process computes for all: those who ask meanwhile, in any process, wait and get the same value, or
 * a RunFailedError if `compute` threw. If that process dies, the next one that waits computes. The value is given to later calls for
 * `ttlMs`, which costs one read each; calls of one process that are under way at the same time share one. An error is not given
 * to later calls. The value is what JSON makes of what `compute` returned, or bytes, for the process that has computed it, too: at most
 * 65,536 bytes.
 *
 * On abort: rejects at once with the signal's reason; a computation that has begun goes on, for the others.
 * @param key a name, as that of a Mutex, which is the lock of the computation.
 * @param compute gets the lock. It should stop when `lock.signal` aborts. If calls of one process differ, that of the first one counts.
 * @throws what `compute` threw, if this process has called it. @throws {RunFailedError} if another process has.
 * @throws {ResultNotKeptError} if `compute` has returned what can't be kept. @throws {LockLostError} if the lock was lost meanwhile.
 * @throws {LockTimeoutError} after `timeoutMs`. @throws {DeadlockError} inside the computation of the same key.
 * @throws {SessionLostError | SessionClosedError | EtcdRefusedError} as `Mutex.lock`. @throws {TypeError | RangeError} on bad arguments.
 */
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function share<T>(
  source: SessionSource,
  key: string,
  compute: (lock: Lock) => T | PromiseLike<T>,
  options: ShareOptions,
): Promise<T> {
  const leases = leaseSourceOf(source);
  const { services } = leases;
  checkName(key, "key");
  checkFunction("compute", compute);
  const { signal, timeoutMs } = checkQueueWait(options, {
    where: "share",
    also: SHARE_OPTIONS,
    source: leases,
  });
  const checked = checkShare(options);
  signal?.throwIfAborted();
  const target = { source: leases, kind: "mutex", name: key, options: checked.lock } as const;
  assertNoDeadlock(target);
  const known = flightsOf(services);
  const there = known.get(key) as Flight<T> | undefined;
  if (there) return there.join({ signal, timeoutMs }, key, services);
  const flight: Flight<T> = new Flight(
    (stop) => shared(target, { compute, checked, signal: stop }),
    () => void (known.get(key) === flight && known.delete(key)),
  );
  known.set(key, flight);
  return flight.join({ signal, timeoutMs }, key, services);
}

function checkShare(options: ShareOptions): CheckedShare {
  const { ttlMs, staleMs, onRefreshError } = options;
  if (onRefreshError !== undefined) checkFunction("onRefreshError", onRefreshError);
  if (ttlMs === undefined) throw new TypeError("Expected ttlMs to be a number, got undefined");
  return {
    ttlMs: checkInteger("ttlMs", ttlMs, { min: MIN_TTL_MS, max: MAX_MS, fallback: NaN }),
    staleMs: checkInteger("staleMs", staleMs, { min: 0, max: MAX_MS, fallback: 0 }),
    lock: checkLock("share", options, [...QUEUE_WAIT_OPTIONS, ...SHARE_OPTIONS]),
    onRefreshError,
  };
}

interface Sharing<T> {
  readonly compute: (lock: Lock) => T | PromiseLike<T>;
  readonly checked: CheckedShare;
  readonly signal: AbortSignal;
}

async function shared<T>(target: AcquireTarget, { compute, checked, signal }: Sharing<T>): Promise<T> {
  const { services } = target.source;
  const plan = new SharePlan(target.name, checked, { services, options: WAITS });
  const { ranges } = await services.client.ranges(plan.reads(), { what: `read ${plan.what}`, signal });
  const found = plan.found(ranges.map(({ kvs }) => kvs));
  if (found) {
    if (!found.isFresh) refresh(target, compute, checked);
    return valueIn<T>(parseMark(found.kv));
  }
  const run = await claimed(target, plan, { signal, timeoutMs: undefined, rejoin: false });
  if (run instanceof SlotRun) {
    await run.run(compute);
    return run.result as T;
  }
  if (!("mark" in run))
    throw new RunFailedError(plan.what, { name: "Error", code: undefined, message: run.state });
  if (run.mark.error) throw new RunFailedError(plan.what, run.mark.error);
  return valueIn<T>(run.mark);
}

/** What refreshes now, by its cluster and key. */
const refreshing = new WeakMap<LeaseSource["services"], Set<string>>();

/** In the background, if no process does so yet. It outlives the call, and its async context. */
function refresh(target: AcquireTarget, compute: (lock: Lock) => unknown, checked: CheckedShare): void {
  const { source, name } = target;
  const here = refreshing.get(source.services) ?? new Set();
  if (here.has(name)) return;
  refreshing.set(source.services, here.add(name));
  const plan = new SharePlan(name, checked, { services: source.services, options: REFRESHES });
  const refreshed = inOwnContext(async () => {
    const run = await claimed(target, plan, {
      signal: undefined,
      timeoutMs: REFRESH_TIMEOUT_MS,
      rejoin: false,
    });
    if (run instanceof SlotRun) await run.run(compute);
  });
  refreshed
    .catch(
      (error: unknown) => void (checked.onRefreshError && tellOutside(() => checked.onRefreshError?.(error))),
    )
    .finally(() => here.delete(name));
}

const valueIn = <T>(mark: Partial<Mark> | undefined): T => resultOf(mark?.result ?? {}) as T;
