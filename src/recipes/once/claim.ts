import { EtcdUnavailableError, FingerprintMismatchError, OnceRunningError } from "../../errors.js";
import {
  type Compare,
  type KeyValue,
  LeaseNotFoundError,
  NotSentError,
  type Txn,
  type TxnAnswer,
} from "../../etcd/port.js";
import { parseEntryValue } from "../../keys.js";
import { holdOf, type TurnWaiter, type Waited } from "../../lock/hold/acquire.js";
import { ExclusiveHoldHandle } from "../../lock/hold/hold.js";
import type { JoinedEntry } from "../../lock/queue/entry.js";
import type { RangeResult } from "../../lock/queue/lock-mode.js";
import { LockTable } from "../../lock/queue/queue.js";
import type { JoinOptions, Queue } from "../../lock/queue/queue.js";
import { heldTxn } from "../../lock/queue/txns.js";
import type { Waiter } from "../../lock/queue/waiter.js";
import type { DelayLease } from "../../lock/session/delay-lease.js";
import type { Lease } from "../../lock/session/lease.js";
import { MarkLeases } from "./mark-leases.js";
import { type Mark, markIs, unchanged } from "./marks.js";
import { NO_MARK, type Plan, type Seen, type Verdict } from "./plan.js";
import { RunEnd } from "./run-end.js";

/** A slot that this call is to run: it holds the lock, and the mark is put. */
export interface Claim {
  readonly hold: ExclusiveHoldHandle;
  readonly mark: Mark;
  /** The lowest marks as of that transaction; undefined if its answer was lost, or the plan needs none. */
  readonly lowest: RangeResult | undefined;
}

/** After so many leases that etcd did not have, something else is wrong. */
const MOST_LEASES = 3;

/** Of a try, if the call has no limit. */
const TRY_MS = 5000;

/** The slot may be run, and another holder has the lock, for which the call does not wait. */
const HELD = { state: "held" } as const;

type Refusal = Exclude<Verdict, { readonly state: "free" }> | typeof HELD;
export type Outcome = { readonly claim: Claim } | { readonly refusal: Refusal };

/** One call of `once`, until it has claimed its slot, finds that it must not run, or gives up. */
export class SlotWaiter implements TurnWaiter<Outcome> {
  readonly granted: Promise<Outcome>;
  #waiter: Waiter | undefined;
  #runEnd: RunEnd | undefined;
  /** The ID of the last run for whose end the call has waited. */
  #awaited: string | undefined;
  #gaveUp = false;
  readonly #again = (): boolean => !this.#gaveUp;

  // eslint-disable-next-line max-params -- what it waits for, and how long
  constructor(
    private readonly lease: Lease,
    private readonly plan: Plan,
    private readonly target: JoinOptions,
    /** What is left of the time limit. */
    private readonly limitMs?: number | undefined,
  ) {
    this.granted = this.#try();
  }

  get joined(): boolean {
    return this.#waiter?.joined ?? false;
  }

  get waitingFor(): Waited {
    return this.#waiter?.waitingFor ?? { name: this.plan.lock, revision: undefined };
  }

  giveUp(): void {
    this.#gaveUp = true;
    this.#waiter?.giveUp();
    this.#runEnd?.stop();
  }

  get #queue(): Queue {
    return LockTable.of(this.lease).queue(this.plan.lock);
  }

  get #what(): string {
    return `claim ${this.plan.text}`;
  }

  /** Claims the slot if it may be run and the queue is empty: by a second attempt if its marks aren't as they were seen. */
  async #try(): Promise<Outcome> {
    let seen = NO_MARK;
    if (!MarkLeases.of(this.lease.services).has(this.plan.begun)) {
      // Without a need, no lease is granted.
      const found = await this.#look();
      if (!this.#mayClaim(found)) return this.#wait(found);
      seen = found.seen;
    }
    const found = await this.#attempt(seen);
    if ("hold" in found || isSame(found.seen, seen) || !this.#mayClaim(found)) return this.#wait(found);
    return this.#wait(await this.#attempt(found.seen));
  }

  #mayClaim(found: Verdict): boolean {
    return found.oldest === undefined && this.#mayRun(found) && !this.#gaveUp;
  }

  async #look(): Promise<Verdict> {
    const { services } = this.lease;
    const policy = { ...this.lease.policy(this.#what), again: this.#again };
    return this.plan.verdict(await services.client.ranges(this.plan.evidence(), policy), this.plan.id);
  }

  /** Takes the lock and puts the mark, in one transaction, if the queue is empty and the marks are as they were `seen`. */
  async #attempt(seen: Seen): Promise<Claim | Verdict> {
    const { lease, plan, target } = this;
    let mark!: Mark;
    let answer!: TxnAnswer;
    const entry = await this.#withLeases(lease.delay, (leases, onLeaseGone) =>
      this.#queue.tryJoin({ what: this.#what, again: this.#again, ...onLeaseGone }, target, {
        extend: (join, { key }) =>
          plan.beginTxn(join, { mark: (mark = plan.mark(lease, key)), seen, leases }),
        answered: (last) => void (answer = last),
        leaveBy: async (leave, policy) => {
          await undo(lease, plan, mark);
          return lease.services.client.txn(leave, policy);
        },
      }),
    );
    if (!entry) return plan.verdict(answer, plan.id);
    target.onAhead?.(0);
    return { hold: holdOf(entry, ExclusiveHoldHandle), mark, lowest: lowestOf(answer) };
  }

  /**
   * Puts with the leases of the plan. etcd does not say which lease it doesn't have: while that of the session lives, it's one of these,
   * which are granted anew; or the delay lease, if an entry is put with that, too.
   */
  async #withLeases<T extends JoinedEntry | TxnAnswer | undefined>(
    delay: DelayLease | undefined,
    put: (leases: readonly bigint[], onLeaseGone: { readonly onLeaseGone?: undefined }) => Promise<T>,
  ): Promise<T> {
    const { lease, plan } = this;
    if (plan.begun.length === 0) return put([], {});
    const marks = MarkLeases.of(lease.services);
    for (let tries = 1; ; tries++) {
      const leases = await marks.for(plan.begun, lease.signal);
      try {
        const done = await put(leases, { onLeaseGone: undefined });
        if (!hasPut(done)) marks.unused(leases);
        return done;
      } catch (error) {
        if (!(error instanceof LeaseNotFoundError)) throw error;
        marks.forget(leases);
        await lease.renewNow();
        if (tries < MOST_LEASES) continue;
        if (!delay) throw new EtcdUnavailableError(this.#what, new Map([["etcd", error]]));
        delay.leaseNotFound();
        throw delay.refusal();
      }
    }
  }

  async #wait(found: Claim | Verdict): Promise<Outcome> {
    if ("hold" in found) return { claim: found };
    const mayRun = this.#mayRun(found);
    if (found.state === "running") {
      if (this.#skipsRun(found)) return { refusal: found };
    } else if (found.state !== "free" && !mayRun) return { refusal: found };
    this.lease.assertOpen();
    if (this.#gaveUp || this.plan.options.skips) this.#forget(found);
    if (this.#gaveUp) throw new NotSentError("the caller gave up");
    if (found.state === "running" && this.plan.options.ifRunning === "wait") return this.#afterRun(found);
    if (this.plan.options.skips) return this.#ask(found);
    this.#waiter = this.#queue.join(this.target);
    const entry = await this.#waiter.granted;
    return this.lease.inFlight.track(this.#begin(holdOf(entry, ExclusiveHoldHandle), entry, found.seen));
  }

  /** A sticky lock of another session may keep a key that nobody has, and gives it back if it is asked to: as for a try. */
  async #ask({ oldest, seen }: Verdict): Promise<Outcome> {
    const { lease, target } = this;
    if (!mayBeKept(oldest, lease)) return { refusal: HELD };
    const limits = { what: this.#what, again: this.#again, giveUpMs: this.limitMs ?? TRY_MS };
    const entry = await this.#queue.tryJoin(limits, target);
    if (!entry) return { refusal: HELD };
    target.onAhead?.(0);
    return lease.inFlight.track(this.#begin(holdOf(entry, ExclusiveHoldHandle), entry, seen));
  }

  /** Another call runs the slot, and this one doesn't wait for that. @throws OnceRunningError */
  #skipsRun({ run }: Extract<Verdict, { readonly state: "running" }>): boolean {
    const { ifRunning, skips } = this.plan.options;
    if (ifRunning === "fail") throw new OnceRunningError(this.plan.lock, this.plan.what, run.owner);
    return ifRunning === "skip" || (ifRunning === "queue" && skips);
  }

  /** Tries again when the run has ended: all who wait for it do so at the same time, and at most one of them takes over. */
  async #afterRun({
    entry,
    revision,
    mark,
  }: Extract<Verdict, { readonly state: "running" }>): Promise<Outcome> {
    this.#awaited = mark.id;
    this.#runEnd = new RunEnd(this.lease, entry, revision);
    await this.#runEnd.ended;
    if (this.#gaveUp) throw new NotSentError("the caller gave up");
    this.lease.assertOpen();
    return this.#try();
  }

  /** Whether the slot is ours to run, or can be when our turn comes. @throws FingerprintMismatchError */
  #mayRun(found: Verdict): boolean {
    const { plan } = this;
    const { fingerprint } = plan.options;
    const other = "mark" in found ? found.mark.fingerprint : undefined;
    if (fingerprint !== undefined && other !== undefined && fingerprint !== other)
      throw new FingerprintMismatchError(
        plan.lock,
        plan.what,
        "mark" in found ? found.mark.owner : undefined,
      );
    // A run for which this call has waited was for this call, too.
    const isAnswer = plan.options.sharesFailures && found.state === "done" && found.mark.id === this.#awaited;
    return !isAnswer && plan.mayRun(found);
  }

  /** The mark of an attempt of ours, which has lost its entry. */
  #forget({ seen, ...found }: Verdict): void {
    if (found.state === "free" && found.isOwn && seen.mark)
      void undoIf(this.lease, this.plan, unchanged(this.plan.at, seen.mark.modRevision));
  }

  /** Puts the mark under the hold. `seen`: as of the last check. Only the holder changes a mark, so this ends. */
  async #begin(hold: ExclusiveHoldHandle, entry: JoinedEntry, last: Seen): Promise<Outcome> {
    const { lease, plan } = this;
    const mark = plan.mark(lease, entry.key, entry.revision);
    try {
      for (let seen = last; ;) {
        const answer = await this.#withLeases(undefined, (leases, onLeaseGone) => {
          const txn = plan.beginTxn(heldTxn(entry), { mark, seen, leases });
          return lease.services.client.txn(txn, {
            ...lease.policy(this.#what),
            again: this.#again,
            ...onLeaseGone,
          });
        });
        // The process may have been suspended before it read the answer: another call may have run the slot meanwhile.
        if (lease.over) throw lease.signal.reason;
        if (answer.succeeded) return { claim: { hold, mark, lowest: lowestOf(answer) } };
        const verdict = await this.#judge(hold, entry, answer);
        if (verdict.state === "running") return { claim: { hold, mark, lowest: undefined } };
        if (verdict.state !== "free" && !this.#mayRun(verdict)) return this.#refuse(hold, verdict);
        seen = verdict.seen;
      }
    } catch (error) {
      abandon(lease, plan, { hold, mark });
      throw error;
    }
  }

  /** "running": an unanswered attempt of ours has put the mark. */
  async #judge(hold: ExclusiveHoldHandle, entry: JoinedEntry, answer: TxnAnswer): Promise<Verdict> {
    const own = answer.ranges[0]?.kvs[0];
    if (own && entry.is(own)) {
      const all = this.plan.verdict(answer, undefined);
      return all.state === "running" ? all : this.plan.verdict(answer, this.plan.id);
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

/** Nothing has run: the slot is as before again, and then the lock is free. */
export function abandon(lease: Lease, plan: Plan, { hold, mark }: Omit<Claim, "lowest">): void {
  void undo(lease, plan, mark).then(() => hold.release().catch(() => undefined));
}

const undo = (lease: Lease, plan: Plan, mark: Mark): Promise<void> =>
  undoIf(lease, plan, markIs(plan.at, mark));

/** Never rejects: if nothing comes of it, such as after the end of the session, the slot counts as lost. */
async function undoIf(lease: Lease, plan: Plan, when: Compare): Promise<void> {
  const undo = plan.undo();
  const txn: Txn = { queues: [plan.path], compare: [when], success: [undo], failure: [] };
  const policy = {
    ...lease.policy(`give back ${plan.text}`),
    // Only the lease of the mark can be gone. A put may be rejected for as long as the database is full: the lock does not wait for that.
    onLeaseGone: undefined,
    untilConfirmed: undo.kind === "delete",
  };
  await lease.inFlight.track(lease.services.client.txn(txn, policy)).catch(() => undefined);
}

const mayBeKept = (oldest: KeyValue | undefined, { leaseId }: Lease): boolean =>
  oldest !== undefined && oldest.leaseId !== leaseId && parseEntryValue(oldest.value).sticky === true;

/** Of an entry that was put, or was not, or of a transaction. */
const hasPut = (done: JoinedEntry | TxnAnswer | undefined): boolean =>
  done !== undefined && !("succeeded" in done && !done.succeeded);

const isSame = (a: Seen, b: Seen): boolean =>
  a.mark?.modRevision === b.mark?.modRevision && a.oldMark === b.oldMark;

/** It is the last operation of a transaction that puts a mark. */
const lowestOf = ({ succeeded, ranges }: TxnAnswer): RangeResult | undefined =>
  succeeded ? ranges.at(-1) : undefined;
