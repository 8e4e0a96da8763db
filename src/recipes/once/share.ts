// A value that one process computes for all: a run like those of `once`, whose result is a key of its own, so that it stays there while it
// is computed anew. etcd deletes it by its lease: no clock of a process decides how old a value is.
//
//   key               lease                         there:
//   NAME//*run        for an hour, or longer        the last run: who computes now, or why that failed
//   NAME//*value      for ttlMs + staleMs           the result of the last run that has succeeded
//   NAME//*fresh      for ttlMs                     the value is younger than ttlMs
import type { KeyValue, Operation } from "../../etcd/port.js";
import { EtcdUnavailableError, LockTimeoutError, RunFailedError } from "../../errors.js";
import { checkFunction, checkInteger, checkName } from "../../base/options/check.js";
import { type CheckedLock, checkLock, checkQueueWait, QUEUE_WAIT_OPTIONS } from "../../base/options/lock.js";
import { newController } from "../../base/util/abort.js";
import { inOwnContext, queueMicrotask, tellOutside } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { assertNoDeadlock } from "../../lock/hold/acquire.js";
import type { AcquireTarget } from "../../lock/hold/events.js";
import type { Lock } from "../../lock/hold/hold.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { copyOf, type Kept, type MarkKey, parseMark, putMark, resultOf } from "./marks.js";
import { type Ended, NO_MARK, Plan, type PlanOptions, type PlanParts, type Verdict } from "./plan.js";
import { askBy } from "../../observe/inspect.js";
import { claimed, SlotRun } from "./run.js";
import { MarkSpace } from "./slots.js";

/** etcd raises the TTL of a lease to 2 s, by its default. */
const MIN_TTL_MS = 2000;
const MAX_MS = 366 * 86_400_000;
/** Of etcd, for the claim of a refresh. */
const REFRESH_TIMEOUT_MS = 5000;
/** After a refresh that failed, or that another process does. */
const REFRESH_PAUSE_MS = 1000;
/** Longer than a computation takes: while its mark is there, those who ask wait for it. */
const RUN_MS = 3_600_000;
const NO_ERROR = { name: "Error", code: undefined, message: "" };
const SHARE_OPTIONS = ["ttlMs", "staleMs", "onRefreshError", "label"] as const;

export interface ShareOptions extends WaitOptions {
  /**
   * How long a value is given to others: milliseconds, 2000 to 366 days. It ends up to a second and an eighth sooner, by the clock of etcd,
   * or a quarter if the time is between two steps; and later only after an election of etcd's leader, which begins all leases anew, or if
   * etcd raises short TTLs.
   */
  readonly ttlMs: number;
  /**
   * So many milliseconds longer, the old value is given at once, while one process computes the new one: 0 to 366 days. A call without it
   * never gets a stale value, whatever other calls allow.
   * @default 0
   */
  readonly staleMs?: number | undefined;
  /**
   * Gets what `compute` threw when it was called for a value that is stale, or why it was not called: no call waits for that. The next try
   * comes with a call, after a second. @default none
   */
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
  readonly #fresh: MarkKey;
  override readonly begun;
  override readonly ended;

  constructor(key: string, { ttlMs, staleMs }: CheckedShare, parts: PlanParts) {
    super(key, parts);
    const space = MarkSpace.of(parts.services, key);
    this.at = space.shared("run");
    this.#value = space.shared("value");
    this.#fresh = space.shared("fresh");
    const all = ttlMs + staleMs;
    this.begun = [{ ms: Math.max(all, RUN_MS), atLeast: true }];
    this.ended = [...this.begun, { ms: all, atLeast: false }, { ms: ttlMs, atLeast: false }];
  }

  get what(): string {
    return `the value of "${this.lock}"`;
  }

  /** For the value and its freshness. */
  reads(): readonly (MarkKey & { readonly keysOnly?: true })[] {
    return [this.#value, { ...this.#fresh, keysOnly: true }];
  }

  /** The value that `reads` have found, if it is one of ours. */
  found([values = [], fresh = []]: readonly (readonly KeyValue[])[]): Found | undefined {
    const [kv] = values;
    const result = kv && parseMark(kv)?.result;
    return result && { kv, result, isFresh: fresh.length > 0 };
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
    const runState = kv && parseMark(kv)?.state;
    // It may have put a value that is over, or its form is unknown.
    const isOver = runState !== "started" && runState !== "failed";
    return {
      last: value?.isFresh ? value.kv : kv,
      seen: { ...NO_MARK, mark: kv },
      oldest,
      state: isOver && !value?.isFresh ? ("free" as const) : undefined,
    };
  }

  protected override ends({ mark, leases: [runLease = 0n, leaseId = 0n, freshLease = 0n] }: Ended) {
    const { result, ...run } = mark;
    const ended = putMark(this.at, run, runLease);
    if (!result) return [ended];
    const fresh = { kind: "put", ...this.#fresh, value: "", leaseId: freshLease } as const;
    return [ended, putMark(this.#value, mark, leaseId), fresh];
  }
}

interface Found {
  readonly kv: KeyValue;
  readonly result: Kept;
  readonly isFresh: boolean;
}

/** A call in this process, which all callers share that ask for the same in the same way. */
class Flight {
  readonly #result: Promise<Kept>;
  readonly #stop = newController();
  #callers = 0;

  /** `onOver`: no further caller may join. */
  constructor(
    start: (signal: AbortSignal) => Promise<Kept>,
    private readonly onOver: () => void,
  ) {
    this.#result = start(this.#stop.signal);
    this.#result.then(onOver, onOver);
  }

  /** When all of them have given up, nobody waits any longer; a computation that has begun goes on. */
  async join<T>({ signal, timeoutMs }: WaitOptions, key: string, services: EtcdServices): Promise<T> {
    this.#callers++;
    const { hosts } = services.client;
    const result = await settleWithin(this.#result, { signal, timeoutMs }, services, {
      onTimeout: () =>
        hosts.attemptsFail
          ? new EtcdUnavailableError(`share "${key}"`, hosts.whyUnanswered(timeoutMs))
          : new LockTimeoutError(
              key,
              timeoutMs ?? 0,
              undefined,
              undefined,
              "its value was still being computed",
            ),
      onGiveUp: () => {
        if (--this.#callers > 0) return;
        this.onOver();
        this.#stop.abort();
      },
    });
    // No caller sees what another one does with its value.
    return resultOf(copyOf(result)) as T;
  }
}

/** Under way, by their source, which may end, and by what they ask for. */
const flights = new WeakMap<LeaseSource, Map<string, Flight>>();

function flightsOf(source: LeaseSource): Map<string, Flight> {
  let known = flights.get(source);
  if (known === undefined) flights.set(source, (known = new Map<string, Flight>()));
  return known;
}

/**
 * Resolves with a value that one process computes for all: those who ask meanwhile, in any process, wait and get the same value, or
 * a RunFailedError if `compute` threw. If that process dies, the next one that waits computes. The value is given to later calls for
 * `ttlMs`, which costs one read each; calls with the same source and times that are under way at the same time share one. An error is not given
 * to later calls. The value is what JSON makes of what `compute` returned, or bytes, for the process that has computed it, too: at most
 * 65,536 bytes. etcd has it in three keys, at `/leasehold/once/KEY//*`.
 *
 * On abort: rejects at once with the signal's reason; a computation that has begun goes on, for the others.
 * @param key a name, as that of a Mutex, which is the lock of the computation.
 * @param compute gets the lock. It should stop when `lock.signal` aborts. If calls of one process differ, that of the first one counts.
 * @throws what `compute` threw, if this process has called it. @throws {RunFailedError} if another process has.
 * @throws {ResultNotKeptError} if `compute` has returned what can't be kept. @throws {LockLostError} if the lock was lost meanwhile.
 * @throws {EtcdUnavailableError} if etcd does not answer the read within 5 s. @throws {LockTimeoutError} after `timeoutMs`. @throws {DeadlockError} inside the computation of the same key.
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
  const known = flightsOf(leases);
  const id = `${checked.ttlMs} ${checked.staleMs} ${key}`;
  const there = known.get(id);
  if (there) return there.join({ signal, timeoutMs }, key, services);
  const flight: Flight = new Flight(
    (stop) => shared(target, { compute, checked, signal: stop }),
    () => void (known.get(id) === flight && known.delete(id)),
  );
  known.set(id, flight);
  return flight.join({ signal, timeoutMs }, key, services);
}

function checkShare(options: Partial<ShareOptions> = {}): CheckedShare {
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

interface Sharing {
  readonly compute: (lock: Lock) => unknown;
  readonly checked: CheckedShare;
  readonly signal: AbortSignal;
}

async function shared(target: AcquireTarget, { compute, checked, signal }: Sharing): Promise<Kept> {
  const { services } = target.source;
  const plan = new SharePlan(target.name, checked, { services, options: WAITS });
  const question = { what: `read ${plan.what}`, wait: { signal, timeoutMs: undefined } };
  const { ranges } = await askBy(services, question, ({ policy }) =>
    services.client.ranges(plan.reads(), policy),
  );
  const found = plan.found(ranges.map(({ kvs }) => kvs));
  if (found?.isFresh) return found.result;
  if (found && checked.staleMs > 0) {
    refresh(target, compute, checked);
    return found.result;
  }
  const run = await claimed(target, plan, { signal, timeoutMs: undefined, rejoin: false });
  if (run instanceof SlotRun) {
    await run.run(compute);
    return run.kept;
  }
  const { result, error = NO_ERROR } = "mark" in run ? run.mark : {};
  if (result) return result;
  throw new RunFailedError(plan.what, error);
}

/** What refreshes now, by its cluster and key. */
const refreshing = new WeakMap<EtcdServices, Set<string>>();

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
    if (!(run instanceof SlotRun)) return false;
    await run.run(compute);
    return true;
  });
  const { clock } = source.services;
  // While another process does it, or what fails, is not tried again by each call.
  const later = (): void => void clock.after(REFRESH_PAUSE_MS, () => here.delete(name)).unref?.();
  refreshed.then(
    (isDone) => (isDone ? here.delete(name) : later()),
    (error: unknown) => {
      later();
      const { onRefreshError } = checked;
      if (onRefreshError) queueMicrotask(() => tellOutside(() => onRefreshError(error)));
    },
  );
}
