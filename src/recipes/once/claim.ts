import { NotSentError, type TxnAnswer } from "../../etcd/port.js";
import { holdOf, type TurnWaiter, type Waited } from "../../lock/hold/acquire.js";
import { ExclusiveHoldHandle } from "../../lock/hold/hold.js";
import type { JoinedEntry } from "../../lock/queue/entry.js";
import type { RangeResult } from "../../lock/queue/lock-mode.js";
import { LockTable } from "../../lock/queue/queue.js";
import type { JoinOptions, Queue } from "../../lock/queue/queue.js";
import { heldTxn } from "../../lock/queue/txns.js";
import type { Waiter } from "../../lock/queue/waiter.js";
import type { Lease } from "../../lock/session/lease.js";
import {
  beginTxn,
  type Mark,
  markIs,
  NO_MARK,
  type Seen,
  type SlotPlan,
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
  readonly #again = (): boolean => !this.#gaveUp;

  constructor(
    private readonly lease: Lease,
    private readonly plan: SlotPlan,
    private readonly target: JoinOptions,
  ) {
    this.granted = this.#try().then((found) => this.#wait(found));
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

  /** Claims the slot if it may be run and the queue is empty: by a second attempt if it has a mark. */
  async #try(): Promise<Claim | Verdict> {
    const found = await this.#attempt(NO_MARK);
    if ("hold" in found || !found.isEmpty || isUnmarked(found) || !this.#mayRun(found)) return found;
    return this.#gaveUp ? found : this.#attempt(found.seen);
  }

  /** Takes the lock and puts the mark, in one transaction, if the queue is empty and the marks are as they were `seen`. */
  async #attempt(seen: Seen): Promise<Claim | Verdict> {
    const { lease, plan, target } = this;
    let mark!: Mark;
    let answer!: TxnAnswer;
    const entry = await this.#queue.tryJoin({ what: this.#what, again: this.#again }, target, {
      extend: (join, { key }) => beginTxn(plan, join, { mark: (mark = plan.mark(lease, key)), seen }),
      answered: (last) => void (answer = last),
      leaveBy: async (leave, policy) => {
        await undo(lease, plan, markIs(plan, mark));
        return lease.services.client.txn(leave, policy);
      },
    });
    if (!entry) return verdictOf(plan, answer.ranges, plan.id);
    target.onAhead?.(0);
    return { hold: holdOf(entry, ExclusiveHoldHandle), mark, lowest: lowestOf(answer) };
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
        const txn = beginTxn(this.plan, heldTxn(entry), { mark, seen });
        const policy = { ...this.lease.policy(this.#what), again: this.#again };
        const answer = await this.lease.services.client.txn(txn, policy);
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
  async #judge(hold: ExclusiveHoldHandle, entry: JoinedEntry, { ranges }: TxnAnswer): Promise<Verdict> {
    const own = ranges[0]?.kvs[0];
    if (own && entry.is(own)) {
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

const isUnmarked = ({ seen }: Verdict): boolean => seen.mark === 0n && seen.oldMark === 0n;

/** It is the last operation of a transaction that puts a mark. */
const lowestOf = ({ succeeded, ranges }: TxnAnswer): RangeResult | undefined =>
  succeeded ? ranges.at(-1) : undefined;
