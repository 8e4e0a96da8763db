import { EtcdRefusedError, EtcdUnavailableError } from "../../errors.js";
import { type KeyValue, LeaseNotFoundError, type Txn, type TxnAnswer } from "../../etcd/port.js";
import { type CallPolicy, retry } from "../../etcd/retry.js";
import type { CheckedQueueWait } from "../../base/options/lock.js";
import { acquireChannel } from "../../base/telemetry/channels.js";
import { acquire, assertNoDeadlock, type Acquirer } from "../../lock/hold/acquire.js";
import { type AcquireTarget, traceAcquire } from "../../lock/hold/events.js";
import type { Lock } from "../../lock/hold/hold.js";
import { HeldScope } from "../../lock/hold/reentrancy.js";
import type { Lease } from "../../lock/session/lease.js";
import { abandon, type Claim, type Outcome, SlotWaiter } from "./claim.js";
import { MarkLeases } from "./mark-leases.js";
import { errorOf, type Kept, keptOf, type Mark, parseMark } from "./marks.js";
import type { Plan, Verdict } from "./plan.js";

/** Why a slot must not be run. */
export type NotRun = Exclude<Verdict, { readonly state: "free" }> | { readonly state: "held" };

/** The slot to run, or why it must not be. Only for a channel with subscribers is the call published. */
export async function claimed(
  target: AcquireTarget,
  plan: Plan,
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
const claiming = (plan: Plan): Acquirer<AcquireTarget, Outcome, SlotRun | NotRun> => ({
  join: (lease, target, limitMs) => new SlotWaiter(lease, plan, target, limitMs),
  made(outcome, target, lease) {
    if ("refusal" in outcome) return outcome.refusal;
    outcome.claim.hold.started(target);
    return new SlotRun(lease, plan, outcome.claim);
  },
  unwanted(outcome, _target, lease) {
    if ("claim" in outcome) abandon(lease, plan, outcome.claim);
  },
  // Claims the slot at once, or not at all: it has no place in a queue, and no holder to report.
  ...(plan.options.skips && plan.options.ifRunning !== "wait" && { tried: () => `claim ${plan.text}` }),
});

/** What a work throws to fail with a result, which is kept and given to later calls as the result of one that is done is. */
export class FailedWithResult extends Error {
  readonly #result: unknown;

  constructor(message: string, result: unknown) {
    super(message);
    this.#result = result;
  }

  /** Of anything that was thrown: a revoked Proxy rejects every other question. */
  static resultOf(thrown: unknown): { readonly result: unknown } | undefined {
    const isOurs = (value: object): value is FailedWithResult => #result in value;
    return typeof thrown === "object" && thrown && isOurs(thrown) ? { result: thrown.#result } : undefined;
  }
}

/** A claimed slot, from the grant until one transaction marks it as run and releases the lock. */
export class SlotRun {
  /** How the work has ended, for the mark. */
  #end: Pick<Mark, "state" | "result" | "error"> = { state: "failed" };
  /** Why etcd has rejected the mark. */
  #rejected: Error | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly plan: Plan,
    private readonly claim: Claim,
  ) {}

  get hold(): Claim["hold"] {
    return this.claim.hold;
  }

  /** What `work` has returned, as it is kept. */
  get kept(): Kept {
    return this.#end.result ?? {};
  }

  /** @throws the error of `work`. @throws LockLostError when the lock was lost before the mark was put. */
  run<T>(work: (lock: Lock) => T): Promise<Awaited<T>> {
    const scope = new HeldScope(this.lease.services, this.claim.hold);
    const marked = async (lock: Lock): Promise<Awaited<T>> => {
      try {
        const value = await work(lock);
        this.#end = { state: "done", ...this.#kept(value) };
        return value;
      } catch (error) {
        const failed = FailedWithResult.resultOf(error);
        this.#end = { state: "failed", error: errorOf(error), ...(failed && this.#kept(failed.result)) };
        throw error;
      }
    };
    return scope.enter(marked, () => this.#leave());
  }

  /** @throws ResultNotKeptError if the value is too large, or has no JSON. */
  #kept(value: unknown): Pick<Mark, "result"> {
    const { options, what } = this.plan;
    return options.keepsResult ? { result: keptOf(value, what) } : {};
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
    await hold.releaseBy((leave, policy) => this.#leaveBy(leave, policy));
    if (this.#rejected) throw this.#rejected;
  }

  /** One transaction deletes the entry and puts the mark. If etcd rejects the mark, the entry leaves without it. */
  async #leaveBy(leave: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    const { lease, claim } = this;
    const { clock } = lease.services;
    const fence = claim.hold.revision.toString();
    const mark: Mark = { ...claim.mark, ended: clock.date().toISOString(), fence, ...this.#end };
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const isRepeated = (): boolean => lease.services.path.requestsAreRepeated;
    try {
      const answer = await this.#putEnd(leave, mark, onUnanswered);
      if (answer.succeeded) return answer;
      // A run of a higher slot may have deleted the mark. One that expires proves nothing.
      const mayBeGone = (doubted || isRepeated()) && this.plan.ended.length === 0;
      return { ...answer, succeeded: isEnded(answer.ranges[0]?.kvs[0], mark.id, mayBeGone) };
    } catch (error) {
      lease.signal.throwIfAborted();
      this.#rejected = error as Error;
      const answer = await lease.services.client.txn(leave, { ...policy, onUnanswered });
      return { ...answer, succeeded: answer.succeeded || doubted || isRepeated() };
    }
  }

  /** etcd may reject a put for as long as its database is full. The lock is not held longer than one TTL for that. */
  #putEnd(leave: Txn, mark: Mark, onUnanswered: () => void): Promise<TxnAnswer> {
    const { lease, plan, claim } = this;
    const { services, signal, ttlMs } = lease;
    const { clock, client } = services;
    const until = clock.monotonic() + ttlMs;
    const marks = MarkLeases.of(services);
    const what = `mark as run ${plan.text}`;
    let leases: readonly bigint[] = [];
    const put = async (): Promise<TxnAnswer> => {
      leases = await marks.for(plan.ended, signal);
      const txn = plan.endTxn(leave, { mark, leases, lowest: claim.lowest });
      // Only a lease of the mark can be gone: it puts with no other.
      const policy = { ...lease.policy(what), onLeaseGone: undefined, onUnanswered };
      return client.txn(txn, policy);
    };
    const failed = (error: unknown): void => {
      const isGone = error instanceof LeaseNotFoundError;
      if (isGone) marks.forget(leases);
      const mayPass = isGone || error instanceof EtcdRefusedError;
      if (mayPass && clock.monotonic() < until) return;
      // Each lease was gone before the put arrived.
      throw isGone ? new EtcdUnavailableError(what, new Map([["etcd", error]])) : error;
    };
    return retry(put, { clock, signal, failed });
  }
}

/**
 * Whether another attempt of this call has deleted the entry and put the mark: one that stayed unanswered, or one that a proxy has
 * repeated. `mayBeGone`: a missing mark proves no loss.
 */
const isEnded = (kv: KeyValue | undefined, id: string, mayBeGone: boolean): boolean => {
  if (!kv) return mayBeGone;
  const mark = parseMark(kv);
  return mark?.id === id && mark.state !== "started";
};
