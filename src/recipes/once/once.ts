import { EtcdRefusedError } from "../../errors.js";
import type { KeyValue, Txn, TxnAnswer } from "../../etcd/port.js";
import { type CallPolicy, retry } from "../../etcd/retry.js";
import { acquire, assertNoDeadlock, type Acquirer } from "../../lock/hold/acquire.js";
import { type AcquireTarget, traceAcquire } from "../../lock/hold/events.js";
import type { Lock } from "../../lock/hold/hold.js";
import { HeldScope } from "../../lock/hold/reentrancy.js";
import {
  checkFunction,
  checkInteger,
  checkName,
  eitherOf,
  rangeError,
  typeError,
} from "../../base/options/check.js";
import {
  type CheckedLock,
  type CheckedQueueWait,
  checkLock,
  checkQueueWait,
  LOCK_OPTIONS,
  QUEUE_WAIT_OPTIONS,
} from "../../base/options/lock.js";
import { leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { Lease } from "../../lock/session/lease.js";
import type { LockOptions, QueueWaitOptions } from "../../lock/session/session-options.js";
import { acquireChannel } from "../../base/telemetry/channels.js";
import { abandon, type Claim, type Outcome, SlotWaiter } from "./claim.js";
import { endTxn, type Mark, NOTHING, type OnceRun, parseMark, SlotPlan } from "./marks.js";

/** The checked options of `once`. */
export interface CheckedOnce {
  readonly wait: CheckedQueueWait;
  readonly lock: CheckedLock;
  readonly rerun: Rerun;
  readonly keep: number;
  /** The call does not wait while another holder has the lock. */
  readonly skips: boolean;
}

type Rerun = "never" | "if_lost" | "if_failed";

/** Some minutes of a job that runs each second, and some years of one that runs each day. */
const DEFAULT_KEEP = 1000;
/** Each release of etcd has room for so many small keys, and lists the oldest of them in a moment. */
const MAX_KEEP = 100_000;
/** The time limit of a call that does not wait in the queue, as of `tryLock`. */
const SKIP_TIMEOUT_MS = 5000;
const ONCE_OPTIONS = ["rerun", "ifHeld", "keep"] as const;

/** Slots that are no integers could be equal as numbers and differ as texts. */
function checkSlot(value: unknown): number {
  const limits = { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: NaN };
  const slot = checkInteger("slot", value, limits);
  if (Number.isNaN(slot)) throw typeError("slot", `a whole number from 0 to ${limits.max}`, value);
  return slot;
}

function checkOnce(options: unknown, source: { readonly reopens: boolean }): CheckedOnce {
  const limits = checkQueueWait(options, { where: "once", also: [...LOCK_OPTIONS, ...ONCE_OPTIONS], source });
  const lock = checkLock("once", options, [...QUEUE_WAIT_OPTIONS, ...ONCE_OPTIONS]);
  const { rerun, ifHeld, keep } = (options ?? {}) as {
    readonly [K in (typeof ONCE_OPTIONS)[number]]?: unknown;
  };
  const skips = checkChoice("ifHeld", ifHeld, IF_HELD) === "skip";
  return {
    wait: skips ? { ...limits, timeoutMs: limits.timeoutMs ?? SKIP_TIMEOUT_MS } : limits,
    lock,
    skips,
    rerun: checkChoice("rerun", rerun, RERUN),
    keep: checkInteger("keep", keep, { min: 1, max: MAX_KEEP, fallback: DEFAULT_KEEP }),
  };
}

/** The first one is the default. */
const RERUN: readonly [Rerun, ...Rerun[]] = ["never", "if_lost", "if_failed"];
const IF_HELD: readonly ["wait", "skip"] = ["wait", "skip"];

function checkChoice<T extends string>(option: string, value: unknown, choices: readonly [T, ...T[]]): T {
  if (value === undefined) return choices[0];
  const chosen = choices.find((choice) => choice === value);
  if (chosen !== undefined) return chosen;
  const error = typeof value === "string" ? rangeError : typeError;
  throw error(option, eitherOf(choices.map((choice) => JSON.stringify(choice))), value);
}

/** A claimed slot, from the grant until one transaction marks it as run and releases the lock. */
class SlotRun {
  #failed = true;
  /** Why etcd has rejected the mark. */
  #rejected: Error | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly plan: SlotPlan,
    private readonly claim: Claim,
  ) {}

  get hold(): Claim["hold"] {
    return this.claim.hold;
  }

  /** @throws the error of `work`. @throws LockLostError when the lock was lost before the mark was put. */
  run<T>(work: (lock: Lock) => T): Promise<Awaited<T>> {
    const scope = new HeldScope(this.lease.services, this.claim.hold);
    const marked = async (lock: Lock): Promise<Awaited<T>> => {
      const value = await work(lock);
      this.#failed = false;
      return value;
    };
    return scope.enter(marked, () => this.#leave());
  }

  async #leave(): Promise<void> {
    const { hold } = this.claim;
    hold.refresh();
    if (hold.signal.aborted) {
      // Nothing else releases a lock that was held for too long.
      void hold.release().catch(() => undefined);
      await hold.explained;
      throw hold.signal.reason;
    }
    await hold.releaseBy((leave, policy) => this.#end(leave, policy));
    if (this.#rejected) throw this.#rejected;
  }

  /** One transaction deletes the entry and puts the mark. If etcd rejects the mark, the entry leaves without it. */
  async #end(leave: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    const { lease, plan, claim } = this;
    const { hold, lowest } = claim;
    const state = this.#failed ? "failed" : "done";
    const mark: Mark = { ...claim.mark, state, fence: hold.revision.toString() };
    const expiry = lowest ? plan.space.expire(lowest, plan.options.keep) : NOTHING;
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const isRepeated = (): boolean => lease.services.path.requestsAreRepeated;
    const what = `mark as run ${plan.text}`;
    try {
      const txn = endTxn(plan, leave, { mark, expiry });
      const answer = await this.#putEnd(txn, { ...lease.policy(what), onUnanswered });
      if (answer.succeeded) return answer;
      return { ...answer, succeeded: isEnded(answer.ranges[0]?.kvs[0], mark.id, doubted || isRepeated()) };
    } catch (error) {
      lease.signal.throwIfAborted();
      this.#rejected = error as Error;
      const answer = await lease.services.client.txn(leave, { ...policy, onUnanswered });
      return { ...answer, succeeded: answer.succeeded || doubted || isRepeated() };
    }
  }

  /** etcd may reject a put for as long as its database is full. The lock is not held longer than one TTL for that. */
  #putEnd(txn: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    const { services, signal, ttlMs } = this.lease;
    const { clock, client } = services;
    const until = clock.monotonic() + ttlMs;
    const failed = (error: unknown): void => {
      if (!(error instanceof EtcdRefusedError) || clock.monotonic() >= until) throw error;
    };
    return retry(() => client.txn(txn, policy), { clock, signal, failed });
  }
}

/**
 * Whether another attempt of this call has deleted the entry and put the mark: one that stayed unanswered, or one that a proxy has
 * repeated. A run of a higher slot may have deleted that mark since, so a missing mark proves no loss.
 */
const isEnded = (kv: KeyValue | undefined, id: string, doubted: boolean): boolean => {
  if (!kv) return doubted;
  const mark = parseMark(kv);
  return mark?.id === id && mark.state !== "started";
};

export type { OnceRun } from "./marks.js";

export interface OnceOptions extends QueueWaitOptions, LockOptions {
  /**
   * What happens with a slot that was run without success. "never": it is not run again, and the result says why. "if_lost": the
   * call runs it again if its run was lost in the middle, because the process crashed, or lost the lock. "if_failed": also if
   * its work threw. With the last two, while another call runs the slot, this one waits in the queue, to take over.
   * @default "never"
   */
  readonly rerun?: "never" | "if_lost" | "if_failed" | undefined;
  /**
   * What happens while another holder has the lock: another slot of the name is running, or a `Mutex` is held. "wait": the call
   * waits in the queue, and runs the slot late. "skip": it never waits, and the result says "held", or "running" if that holder
   * runs this very slot. Then `timeoutMs`, 5000 by default, limits the wait for etcd.
   * @default "wait"
   */
  readonly ifHeld?: "wait" | "skip" | undefined;
  /**
   * Marks of so many slots are kept, those with the highest numbers, 1..100000. A slot that is not higher than one whose mark
   * was deleted has expired, and is never run. If the calls of a name differ, the lowest value applies.
   * @default 1000
   */
  readonly keep?: number | undefined;
}

/** Whether `work` has run, and if not, why. */
export type OnceResult<T> =
  | { readonly ran: true; readonly value: T }
  | {
      readonly ran: false;
      /**
       * "done": the slot has been run. "running": another call runs it now. "lost": its run was lost in the middle. "expired":
       * the slot is older than those whose marks are kept. "held": `ifHeld` is "skip", and another holder has the lock.
       */
      readonly reason: "done" | "running" | "lost" | "expired" | "held";
      /** The other run of the slot; undefined if the slot has expired, and for "held". */
      readonly run: OnceRun | undefined;
    };

/**
 * Runs `work` at most once for each slot, whatever the clocks of the callers say: a slot is a number that all of them derive
 * from the same schedule, such as the epoch milliseconds of a cron tick. The call takes the lock `name`, as a `Mutex` does, and
 * the transaction that takes it compares the mark of the slot and puts it. When `work` has ended, one transaction marks the slot as run
 * and releases the lock, if it is still held. If the slot has run, the call sends one request.
 *
 * If another holder has the lock, `ifHeld` decides whether the call waits in the queue, so slots of one name never overlap. If
 * `work` throws, that very error is thrown, and the slot counts as run and failed. The slot counts as lost if the lock is lost, or
 * released by `work`, before `work` ends: the call rejects. `rerun` decides what the next call does after either. Marks have no
 * lease; up to `keep` of them stay in etcd.
 *
 * On abort and throws: as `Mutex.lock`, and an abort is ignored while `work` runs.
 * @param slot a whole number from 0 to Number.MAX_SAFE_INTEGER.
 * @param work gets the lock. It should stop when `lock.signal` aborts.
 * @throws {LockLostError} when the lock was lost before `work` ended, or before the mark of the run was put.
 * @throws {LockReleasedError} when `work` has released the lock itself.
 * @throws {LockTimeoutError} after `timeoutMs`, which limits the wait, not `work`. With `ifHeld: "skip"` it limits the wait for etcd,
 * and the error is an EtcdUnavailableError.
 */
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function once<T>(
  source: SessionSource,
  name: string,
  slot: number,
  work: (lock: Lock) => T | PromiseLike<T>,
  options?: OnceOptions,
): Promise<OnceResult<T>> {
  const leases = leaseSourceOf(source);
  const checked = checkOnce(options, leases);
  const { services } = leases;
  const plan = new SlotPlan(checkName(name), checkSlot(slot), { services, options: checked });
  checkFunction("work", work);
  const target = { source: leases, kind: "mutex", name: plan.name, options: checked.lock } as const;
  const found = await claimed(target, plan, checked.wait);
  if (!(found instanceof SlotRun)) return { ran: false, ...found };
  const value: T = await found.run(work);
  return { ran: true, value };
}

type NotRun = Omit<Extract<OnceResult<never>, { readonly ran: false }>, "ran">;

/** The slot to run. Only for a channel with subscribers is the call published. */
async function claimed(
  target: AcquireTarget,
  plan: SlotPlan,
  wait: CheckedQueueWait,
): Promise<SlotRun | NotRun> {
  const by = claiming(plan);
  const claim = (each: AcquireTarget): Promise<SlotRun | NotRun> => {
    wait.signal?.throwIfAborted();
    if (plan.options.skips) assertNoDeadlock(each);
    return acquire(each, wait, by);
  };
  if (!acquireChannel.hasSubscribers) return claim(target);
  const call = { tries: plan.options.skips, signal: wait.signal };
  let found: SlotRun | NotRun | undefined;
  await traceAcquire(target, call, async (traced) => {
    found = await claim(traced);
    return found instanceof SlotRun ? found.hold : undefined;
  });
  return found as SlotRun | NotRun;
}

/** Waits until the slot is claimed, or must not be run. */
const claiming = (plan: SlotPlan): Acquirer<AcquireTarget, Outcome, SlotRun | NotRun> => ({
  join: (lease, target) => new SlotWaiter(lease, plan, target),
  made(outcome, target, lease) {
    if ("refusal" in outcome) {
      const { refusal } = outcome;
      return { reason: refusal.state, run: "run" in refusal ? refusal.run : undefined };
    }
    outcome.claim.hold.started(target);
    return new SlotRun(lease, plan, outcome.claim);
  },
  unwanted(outcome, _target, lease) {
    if ("claim" in outcome) abandon(lease, plan, outcome.claim);
  },
  // Claims the slot at once, or not at all: it has no place in a queue, and no holder to report.
  ...(plan.options.skips && { tried: () => `claim ${plan.text}` }),
});
