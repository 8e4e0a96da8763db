import { NotSentError, type TxnAnswer } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import { holdOf, type TurnWaiter, type Waited } from "../../lock/hold/acquire.js";
import { ExclusiveHoldHandle } from "../../lock/hold/hold.js";
import type { JoinedEntry, QueueEntry } from "../../lock/queue/entry.js";
import { GRANTED, type RangeResult } from "../../lock/queue/lock-mode.js";
import { LockTable } from "../../lock/queue/queue.js";
import type { JoinOptions, Queue } from "../../lock/queue/queue.js";
import { joinRefused } from "../../lock/queue/txns.js";
import type { Waiter } from "../../lock/queue/waiter.js";
import type { Lease } from "../../lock/session/lease.js";
import {
  beginTxn,
  type Begun,
  type Mark,
  markIs,
  NO_MARK,
  type Seen,
  type SlotPlan,
  tryTxn,
  unchanged,
  undo,
  type Verdict,
  verdictOf,
} from "./marks.js";

/** A slot that this call is to run: it holds the lock, and the mark is put. */
export interface Claim {
  readonly hold: ExclusiveHoldHandle;
  readonly mark: Mark;
  /** The lowest marks as of that transaction; undefined if its answer was lost. */
  readonly lowest: RangeResult | undefined;
}

/** The slot may be run, and another holder has the lock, for which the call does not wait. */
const HELD = { state: "held" } as const;

type Refusal = Exclude<Verdict, { readonly state: "free" }> | typeof HELD;
export type Outcome = { readonly claim: Claim } | { readonly refusal: Refusal };

/** One call of `once`, until it has claimed its slot, finds that it must not run, or gives up. */
export class SlotWaiter implements TurnWaiter<Outcome> {
  readonly granted: Promise<Outcome>;
  #waiter: Waiter | undefined;
  #gaveUp = false;

  constructor(
    private readonly lease: Lease,
    private readonly plan: SlotPlan,
    private readonly target: JoinOptions,
  ) {
    this.granted = lease.inFlight.track(this.#try()).then((found) => this.#wait(found));
  }

  get joined(): boolean {
    return this.#waiter?.joined ?? false;
  }

  get waitingFor(): Waited {
    return this.#waiter?.waitingFor ?? { name: this.plan.name, revision: undefined };
  }

  giveUp(): void {
    this.#gaveUp = true;
    this.#waiter?.giveUp();
  }

  get #queue(): Queue {
    return LockTable.of(this.lease).queue(this.plan.name);
  }

  get #what(): string {
    return `claim ${this.plan.text}`;
  }

  #policy(policy = this.lease.policy(this.#what)): CallPolicy {
    return { ...policy, again: () => !this.#gaveUp };
  }

  /** Claims the slot if it may be run and the queue is empty: by a second attempt if it has a mark. */
  async #try(): Promise<Claim | Verdict> {
    const found = await this.#attempt(NO_MARK);
    if ("hold" in found || !found.isEmpty || isUnmarked(found) || !this.#mayRun(found)) return found;
    this.lease.assertOpen();
    return this.#gaveUp ? found : this.#attempt(found.seen);
  }

  async #attempt(seen: Seen): Promise<Claim | Verdict> {
    const entry = this.#queue.own.make();
    const mark = this.plan.mark(this.lease, entry.key);
    const answer = await this.#put(entry, { mark, seen });
    const revision = answer.succeeded ? answer.header.revision : executedAt(entry, answer);
    if (revision === undefined) {
      this.#discard(entry);
      return verdictOf(this.plan, answer.ranges.slice(1), mark.id);
    }
    if (!answer.succeeded) entry.foundExecuted();
    const joined = entry.confirmed(revision);
    this.#queue.own.add(joined);
    this.#queue.grant(joined, GRANTED);
    this.target.onAhead?.(0);
    return { hold: holdOf(joined, ExclusiveHoldHandle), mark, lowest: lowestOf(answer) };
  }

  async #put(entry: QueueEntry, begun: Begun): Promise<TxnAnswer> {
    const txn = tryTxn(this.plan, entry, begun);
    const policy = {
      ...this.#policy(this.lease.joinPolicy(this.#what)),
      onUnanswered: () => entry.attemptUnanswered(),
    };
    try {
      return await this.lease.services.client.txn(txn, policy);
    } catch (error) {
      const reason = await joinRefused(this.lease, txn, error);
      // Both keys may have been put, or may still be.
      const put = markIs(this.plan, begun.mark);
      if (entry.inDoubt) void undo(this.lease, this.plan, put).then(() => this.#leave(entry));
      else this.#discard(entry);
      this.lease.signal.throwIfAborted();
      throw reason;
    }
  }

  #leave(entry: QueueEntry): void {
    this.#queue.leaveInBackground(entry);
  }

  #discard(entry: QueueEntry): void {
    this.#queue.own.release(entry);
    this.#queue.forgetIfIdle();
  }

  async #wait(found: Claim | Verdict): Promise<Outcome> {
    if ("hold" in found) return { claim: found };
    if (found.state !== "free" && !this.#mayRun(found)) return { refusal: found };
    this.lease.assertOpen();
    if (this.#gaveUp || this.plan.options.skips) this.#forget(found);
    if (this.#gaveUp) throw new NotSentError("the caller gave up");
    if (this.plan.options.skips) return { refusal: found.state === "running" ? found : HELD };
    this.#waiter = this.#queue.join(this.target);
    const entry = await this.#waiter.granted;
    return this.lease.inFlight.track(this.#begin(holdOf(entry, ExclusiveHoldHandle), entry, found.seen));
  }

  /** Whether the slot is ours to run, or can be when our turn comes. */
  #mayRun(found: Verdict): boolean {
    const { rerun } = this.plan.options;
    if (found.state === "free" || found.state === "expired") return found.state === "free";
    if (found.state === "done") return rerun === "if_failed" && found.run.failed;
    return rerun !== "never";
  }

  /** A mark on a free slot is that of an attempt of ours, which has lost its entry. */
  #forget({ state, seen }: Verdict): void {
    if (state !== "free" || seen.mark === 0n) return;
    void undo(this.lease, this.plan, unchanged(this.plan.at, seen.mark));
  }

  /** Puts the mark under the hold. `seen`: as of the last check. Only the holder changes a mark, so this ends. */
  async #begin(hold: ExclusiveHoldHandle, entry: JoinedEntry, last: Seen): Promise<Outcome> {
    const mark = this.plan.mark(this.lease, entry.key, entry.revision);
    try {
      for (let seen = last; ;) {
        const txn = beginTxn(this.plan, entry, { mark, seen });
        const answer = await this.lease.services.client.txn(txn, this.#policy());
        // The process may have been suspended before it read the answer: another call may have run the slot meanwhile.
        if (this.lease.over) throw this.lease.signal.reason;
        if (answer.succeeded) return { claim: { hold, mark, lowest: lowestOf(answer) } };
        const verdict = await this.#judge(hold, entry, answer);
        if (verdict.state === "running") return { claim: { hold, mark, lowest: undefined } };
        if (verdict.state !== "free" && !this.#mayRun(verdict)) return this.#refuse(hold, verdict);
        seen = verdict.seen;
      }
    } catch (error) {
      abandon(this.lease, this.plan, { hold, mark });
      throw error;
    }
  }

  /** "running": an unanswered attempt of ours has put the mark. */
  async #judge(
    hold: ExclusiveHoldHandle,
    entry: JoinedEntry,
    { ranges: [own, ...ranges] }: TxnAnswer,
  ): Promise<Verdict> {
    if (own?.kvs[0] && entry.is(own.kvs[0])) {
      const all = verdictOf(this.plan, ranges, undefined);
      return all.state === "running" ? all : verdictOf(this.plan, ranges, this.plan.id);
    }
    hold.keyDeleted();
    await hold.explained;
    throw hold.signal.reason;
  }

  #refuse(hold: ExclusiveHoldHandle, refusal: Refusal): Outcome {
    hold.release().catch(() => undefined);
    return { refusal };
  }
}

/** Nothing has run: the slot is free again, and then the lock. */
export function abandon(lease: Lease, plan: SlotPlan, { hold, mark }: Omit<Claim, "lowest">): void {
  void undo(lease, plan, markIs(plan, mark)).then(() => hold.release().catch(() => undefined));
}

/** The create revision of our entry, if an unanswered attempt has put it. */
function executedAt(entry: QueueEntry, { ranges: [own] }: TxnAnswer): bigint | undefined {
  const found = own?.kvs[0];
  const isOurs = found?.value === entry.value && found.leaseId === entry.lease.leaseId;
  return isOurs ? found.createRevision : undefined;
}

const isUnmarked = ({ seen }: Verdict): boolean => seen.mark === 0n && seen.oldMark === 0n;

/** It is the last operation of a transaction that puts a mark. */
const lowestOf = ({ succeeded, ranges }: TxnAnswer): RangeResult | undefined =>
  succeeded ? ranges.at(-1) : undefined;
