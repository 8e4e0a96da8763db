import { settleWithin } from "../async/settle-within.js";
import { acquireChannel } from "../diagnostics/channels.js";
import { EtcdUnavailableError } from "../errors.js";
import type { Lock } from "../hold/hold.js";
import { traceAcquire, type AcquireTarget } from "../hold/trace-acquire.js";
import { TurnCall } from "../hold/wait-for-turn.js";
import { checkFunction, checkName, type CheckedWait } from "../options/check.js";
import { checkOnce, checkSlot } from "../options/once.js";
import type { CheckedQueueWait } from "../options/queue-wait.js";
import type { Lease } from "../session/lease.js";
import type { LockOptions, QueueWaitOptions } from "../session/session-options.js";
import { leaseSourceOf, type SessionSource } from "../session/session-source.js";
import { abandon, SlotWaiter, type Outcome } from "./claim.js";
import { SlotPlan } from "./plan.js";
import { SlotRun } from "./run.js";
import type { OnceRun } from "./verdict.js";

export type { OnceRun } from "./verdict.js";

export interface OnceOptions extends QueueWaitOptions, LockOptions {
  /**
   * What happens with a slot that was run without success. "never": it is not run again, and the result says why. "if lost": the
   * call runs it again if its run was lost in the middle, because the process crashed, or lost the lock. "if failed": also if
   * its work threw. With the last two, while another call runs the slot, this one waits in the queue, to take over.
   * @default "never"
   */
  readonly rerun?: "never" | "if lost" | "if failed" | undefined;
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
      readonly why: "done" | "running" | "lost" | "expired" | "held";
      /** The other run of the slot; undefined if the slot has expired, and for "held". */
      readonly run: OnceRun | undefined;
    };

/**
 * Runs `work` at most once for each slot, whatever the clocks of the callers say: a slot is a number that all of them derive
 * from the same schedule, such as the epoch milliseconds of a cron tick. The call takes the lock `name`, as a `Mutex` does, and
 * the transaction that takes it compares the mark of the slot and puts it. When `work` has ended, a transaction that is guarded
 * by the hold marks the slot as run, and the lock is released. If the slot has run, the call sends one request.
 *
 * If another holder has the lock, `ifHeld` decides whether the call waits in the queue, so slots of one name never overlap. If
 * `work` throws, that very error is thrown, and the slot counts as run and failed. The slot counts as lost if the lock is lost, or
 * released by `work`, before `work` ends: the call rejects. `rerun` decides what the next call does after either. Marks have no
 * lease; up to `keep` of them stay in etcd.
 *
 * On abort: rejects at once with the signal's own reason; what has begun is undone in the background. Ignored while `work` runs.
 * @param slot a whole number from 0 to Number.MAX_SAFE_INTEGER.
 * @param work gets the lock. It should stop when `lock.signal` aborts.
 * @throws {LockLostError} when the lock was lost before `work` ended, or before the mark of the run was put.
 * @throws {LockReleasedError} when `work` has released the lock itself.
 * @throws {LockTimeoutError} after `timeoutMs`, which limits the wait, not `work`. With `ifHeld: "skip"` etcd has not answered until
 * then, which is an EtcdUnavailableError.
 * @throws {DeadlockError} in an async context that already holds the name, or a name under it.
 * @throws {KindMismatchError} when it would wait for an entry of another kind, or of a nested name: see docs/kinds.md.
 * @throws {SessionLostError | SessionClosedError} when the session ends before `work` begins: while it waits, without `rejoin`.
 * @throws {EtcdUnavailableError} when no session could be opened, or etcd had fallen silent when `timeoutMs` passed.
 * @throws {EtcdRefusedError} when etcd rejects a request.
 * @throws {TypeError | RangeError} on bad arguments.
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
  const Call = plan.options.skips ? SlotTry : SlotCall;
  if (!acquireChannel.hasSubscribers) return new Call(target, plan, wait).run();
  const call = { tries: plan.options.skips, signal: wait.signal };
  let found: SlotRun | NotRun | undefined;
  await traceAcquire(target, call, async (traced) => {
    found = await new Call(traced, plan, wait).run();
    return found instanceof SlotRun ? found.hold : undefined;
  });
  return found as SlotRun | NotRun;
}

/** Waits until the slot is claimed, or must not be run. */
class SlotCall extends TurnCall<Outcome, SlotRun | NotRun> {
  #lease: Lease | undefined;

  constructor(
    private readonly target: AcquireTarget,
    protected readonly plan: SlotPlan,
    wait: CheckedQueueWait,
  ) {
    super(wait);
  }

  get about(): AcquireTarget {
    return this.target;
  }

  protected join(lease: Lease): SlotWaiter {
    this.#lease = lease;
    return new SlotWaiter(lease, this.plan, this.target);
  }

  protected releaseUnwanted(outcome: Outcome): void {
    if ("claim" in outcome) abandon(this.#lease as Lease, this.plan, outcome.claim);
  }

  result(outcome: Outcome): SlotRun | NotRun {
    if ("refusal" in outcome) {
      const { refusal } = outcome;
      return { why: refusal.state, run: "run" in refusal ? refusal.run : undefined };
    }
    outcome.claim.hold.started(this.target);
    return new SlotRun(this.#lease as Lease, this.plan, outcome.claim);
  }
}

/** Claims the slot at once, or not at all: it has no place in a queue, and no holder to report. */
class SlotTry extends SlotCall {
  override begin(lease: Lease, left: CheckedWait): Promise<Outcome> {
    const { services } = lease;
    const waiter = this.join(lease);
    return settleWithin(waiter.granted, left, services, {
      onTimeout: () => new EtcdUnavailableError(`claim ${this.plan.text}`, services.client.lastFailures),
      onGiveUp: () => waiter.giveUp(),
      onUnwanted: (outcome) => this.releaseUnwanted(outcome),
    });
  }

  override overdue(error: unknown): unknown {
    return error;
  }
}
