import type { Lock } from "../../lock/hold/hold.js";
import { checkFunction, checkName } from "../../base/options/check.js";
import { leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { LockOptions, QueueWaitOptions } from "../../lock/session/session-options.js";
import { history } from "./history.js";
import { checkOnce, checkSlot, checkText } from "./options.js";
import { type OnceError, type OnceRun, resultOf } from "./marks.js";
import { claimed, type NotRun, SlotRun } from "./run.js";
import { SlotPlan, TextPlan } from "./slots.js";

export type { OnceError, OnceRun } from "./marks.js";

export interface OnceOptions extends QueueWaitOptions, LockOptions {
  /**
   * What happens with a slot that was run without success. "never": it is not run again, and the result says why. "if_lost": the
   * call runs it again if its run was lost in the middle, because the process crashed, or lost the lock. "if_failed": also if
   * its work threw. With the last two, while another call runs the slot, this one waits in the queue, to take over, unless
   * `ifRunning` says otherwise. Calls with different `rerun` and `ifHeld` can be mixed.
   * @default "never"
   */
  readonly rerun?: "never" | "if_lost" | "if_failed" | undefined;
  /**
   * What happens while another holder has the lock: another slot of the name is running, or a `Mutex` is held. "wait": the call
   * waits in the queue, and runs the slot late. "skip": it never waits, and the result says "held", or "running" if that holder
   * runs this very slot. Then `timeoutMs`, 5000 by default, limits the wait for etcd. It asks for the key of a sticky lock as `tryLock` does.
   * @default "wait"
   */
  readonly ifHeld?: "wait" | "skip" | undefined;
  /**
   * What happens while another call runs this very slot. "skip": the result says "running". "wait": the call waits for the end of that
   * run, and gets what came of it, without a place in the queue; with `rerun`, one of those that wait takes over after a loss. "fail": it
   * rejects with an OnceRunningError, for which `httpStatusOf` gives 409.
   * @default "skip"; with another `rerun` than "never", a place in the queue
   */
  readonly ifRunning?: "wait" | "skip" | "fail" | undefined;
  /**
   * How long marks are kept. For slots that are numbers, `{ slots }` or a number: marks of so many slots, those with the highest numbers,
   * 1..100000; a slot that is not higher than one whose mark this has deleted has expired, and is never run. If the calls of a name differ,
   * the lowest value applies. For slots that are strings, `{ ms }`, 1000 to 366 days: the mark stays for so long from its last change on,
   * by the clock of etcd, and up to an eighth or 5 s longer, or a quarter if it is between two steps; then the slot is as new. That of a
   * run which has not ended stays for an hour at least: `ms` must be longer than the work can take.
   *
   * The mark of slot 42 of `jobs/report` is `/leasehold/once/jobs/report//0000000000000042`, without a lease, or under
   * `/leasehold/once/prod/` with `connect({ prefix: "prod/" })`. Delete a mark by hand to have its slot run again, and all when the name is
   * no longer used. The mark of a string is `/leasehold/once/payments//=KEY`, percent-encoded, on a lease that no session has: if that is
   * revoked, its slots are as new. `list`, `leasehold top` and the page read the marks if their prefix is empty.
   * @default 1000 slots, and 24 hours
   */
  readonly keep?: number | { readonly slots: number } | { readonly ms: number } | undefined;
  /**
   * What the request consists of, or its hash. A call with another one for the same slot is another request: it runs nothing, gets no
   * result, and rejects with a FingerprintMismatchError. Not compared if one of the two has none.
   */
  readonly fingerprint?: string | Uint8Array | undefined;
}

/** The options of a call that keeps the result. */
export interface KeepingOnceOptions extends OnceOptions {
  /**
   * "keep": what `work` returns is kept with the mark, and given to later calls of the slot: bytes, or its JSON, of at most 65,536 bytes,
   * nested 1000 deep at most. The call then resolves with an `OnceReply`. If the result can't be kept, the run has failed, with a ResultNotKeptError.
   */
  readonly result: "keep";
}

/** Whether `work` has run, and if not, why. */
export type OnceResult<T> =
  | { readonly ran: true; readonly value: T }
  | {
      readonly ran: false;
      /**
       * "done": the slot has been run. "running": another call runs it now. "lost": its run was lost in the middle. "expired":
       * the slot is older than those whose marks are kept. "held": `ifHeld` is "skip", and another holder has the lock. "missed":
       * `catchUp` was told not to run it.
       */
      readonly reason: "done" | "running" | "lost" | "expired" | "held" | "missed";
      /** The other run of the slot; undefined if the slot has expired, and for "held". */
      readonly run: OnceRun | undefined;
    };

/** What came of a slot whose result is kept: the same for the call that ran it and for all later ones. */
export type OnceReply<T> =
  | {
      readonly status: "done";
      /** As it was kept: what JSON makes of what `work` returned, or bytes. undefined if the call that ran it has kept none. */
      readonly result: T;
      /** Another call has run it. */
      readonly replayed: boolean;
      /** The run of that other call. */
      readonly run: OnceRun | undefined;
    }
  /** The work of another call threw. `result`: what the program has kept of a command that has failed, by `run --keep-output`. */
  | { readonly status: "failed"; readonly error: OnceError; readonly run: OnceRun; readonly result?: T }
  /** See `reason` of `OnceResult`. */
  | { readonly status: "running" | "lost" | "missed"; readonly run: OnceRun }
  | { readonly status: "expired" | "held"; readonly run: undefined };

/**
 * Runs `work` at most once for each slot, whatever the clocks of the callers say. A slot is a number that all of them derive
 * from the same schedule, such as the epoch milliseconds of a cron tick; or any string, such as the idempotency key of a request. If
 * another holder has the lock, `ifHeld` and `ifRunning` decide whether the call waits. If `work` throws, that very error is thrown, and the
 * slot counts as run and failed. The slot counts as lost if the process crashes, if the lock is lost, or released by `work`, before `work`
 * ends, or if etcd rejects the mark for a TTL, as while its database is full: the call rejects. `rerun` decides what the next call does
 * after either. After a restore of etcd, slots that have run since the backup run again.
 *
 * The lock is that of a `Mutex`: `name`, so that numbered slots of one name never overlap, or `name/SLOT`, percent-encoded, for a string.
 * The transaction that takes it compares the mark of the slot and puts it. When `work` has ended, one transaction marks the slot as run
 * and releases the lock, if it is still held. The mark has at most 96 KiB, and keeps the name, code and message of an error; `keep` says
 * where it is. A run costs two requests if the queue is empty, a slot that has run one.
 *
 * On abort and throws: as `Mutex.lock`, and an abort is ignored while `work` runs. A call that gives up before its work leaves the slot as
 * it was; while etcd is slower than `requestTimeoutMs`, the slot may count as lost, though it never ran.
 * @param slot a whole number from 0 to Number.MAX_SAFE_INTEGER, or a string, which has at most 1024 bytes with `name`, percent-encoded. A
 * name has slots of one kind only: the lock of the numbers is above those of the strings, which block it.
 * @param work gets the lock. It should stop when `lock.signal` aborts.
 * @throws {LockLostError} when the lock was lost before `work` ended, or before etcd had confirmed the mark of the run, which may be there then.
 * @throws {LockReleasedError} when `work` has released the lock itself. @throws {EtcdRefusedError} when etcd rejects the mark for a TTL.
 * @throws {LockTimeoutError} after `timeoutMs`, which limits the wait, not `work`. With `ifHeld: "skip"` it limits the wait for etcd,
 * and the error is an EtcdUnavailableError.
 * @throws {OnceRunningError} with `ifRunning: "fail"`. @throws {FingerprintMismatchError} when the slot is that of another request.
 * @throws {ResultNotKeptError} when `work` has returned what can't be kept.
 */
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function once<T>(
  source: SessionSource,
  name: string,
  slot: number | string,
  work: (lock: Lock) => T | PromiseLike<T>,
  options: KeepingOnceOptions,
): Promise<OnceReply<T>>;
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function once<T>(
  source: SessionSource,
  name: string,
  slot: number | string,
  work: (lock: Lock) => T | PromiseLike<T>,
  options?: OnceOptions,
): Promise<OnceResult<T>>;
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function once<T>(
  source: SessionSource,
  name: string,
  slot: number | string,
  work: (lock: Lock) => T | PromiseLike<T>,
  options?: OnceOptions | KeepingOnceOptions,
): Promise<OnceResult<T> | OnceReply<T>> {
  const leases = leaseSourceOf(source);
  checkName(name);
  const at = typeof slot === "string" ? checkText(name, slot) : checkSlot(slot);
  const checked = checkOnce(options, at, leases);
  const { keep, keepMs } = checked;
  const parts = { services: leases.services, options: checked.plan, keep, keepMs };
  const plan = typeof at === "string" ? new TextPlan(name, at, parts) : new SlotPlan(name, at, parts);
  checkFunction("work", work);
  const target = { source: leases, kind: "mutex", name: plan.lock, options: checked.lock } as const;
  const found = await claimed(target, plan, checked.wait);
  if (!(found instanceof SlotRun)) return checked.plan.keepsResult ? replyOf<T>(found) : resultFor(found);
  const value: T = await found.run(work);
  if (!checked.plan.keepsResult) return { ran: true, value };
  return { status: "done", result: resultOf(found.kept) as T, replayed: false, run: undefined };
}

once.history = history;

const resultFor = (found: NotRun): Extract<OnceResult<never>, { readonly ran: false }> => ({
  ran: false,
  reason: found.state,
  run: "run" in found ? found.run : undefined,
});

function replyOf<T>(found: NotRun): OnceReply<T> {
  if (!("run" in found)) return { status: found.state, run: undefined };
  const { state, run, mark } = found;
  if (state !== "done") return { status: state, run };
  const unknown: OnceError = { name: "Error", code: undefined, message: "" };
  const result = resultOf(mark.result ?? {}) as T;
  if (run.failed)
    return { status: "failed", error: run.error ?? unknown, run, ...(mark.result && { result }) };
  return { status: "done", result, replayed: true, run };
}
