// How a leader hands over to the candidate of its choice. The order of the queue is that of the create revisions, which nobody can
// change. But a waiting candidate of this library whose key another client deletes joins the queue again, at its end. So one transaction
// deletes the leader's key and the keys between it and the target, if all of them, and the target's, are those that were read:
//
//   A leads  B  C  D  E      transfer to D      D leads  E  B  C      (or C before B: each joins by itself)
//
// No entry can come before the target later, so the target is the oldest one then. A candidate of Go's, or an older one of ours, would
// not notice the end of its key, and believe that it leads: only those move that have said that they may (`transferable`).
//
// At its turn, the target would hand over to a higher priority. So the transaction of a `transfer` puts the target's key again, unchanged:
// no other key of a candidate that waits is ever put again. If etcd rejects that put (since 3.6, a user may not put with a lease that has a key
// which it may not write), the transaction is sent without it.
//
// The leader's hold has ended before the transaction is sent, as at each release, and under `lead` its work has settled. So whatever
// becomes of the transaction and its answer, at most the target leads. If the target is gone by then, or etcd rejects the transaction, the
// leader leaves as it would have left without it.
import { EtcdRefusedError, TransferError, type TransferRefusal } from "../../errors.js";
import {
  type Compare,
  LeaseNotFoundError,
  type Operation,
  type Txn,
  type TxnAnswer,
} from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import type { LeaveBy } from "../../lock/queue/queue.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import {
  candidateRanges,
  type CheckedCandidate,
  type ElectionCandidate,
  type QueuedKey,
  queuedKeys,
  type TransferTarget,
} from "./candidates.js";

/** etcd takes 128 compares, and as many operations, by default. So many more are moved before. */
const MAX_MOVED = 40;

/** The place of a leader. */
export interface Place {
  readonly name: string;
  readonly path: string;
  readonly key: string;
  readonly revision: bigint;
}

const isAt = (place: Pick<ElectionCandidate, "key" | "revision">) => (queued: QueuedKey) =>
  queued.candidate.key === place.key && queued.candidate.revision === place.revision;

/** A candidate to hand over to, and those before it. */
export interface Next {
  readonly target: QueuedKey;
  readonly between: readonly QueuedKey[];
}

/** @throws {TransferError} if the leader can't hand over to it. */
export function nextOf(place: Place, queue: readonly QueuedKey[], to: TransferTarget): Next {
  const refused = (reason: TransferRefusal, at?: QueuedKey): TransferError =>
    new TransferError(place.name, typeof to === "string" ? to : to.key, reason, at?.candidate.key);
  const isOwn = isAt(place);
  const isNamed = typeof to === "string" ? ({ candidate }: QueuedKey) => candidate.owner === to : isAt(to);
  const named = queue.filter(isNamed);
  const target = named.find((queued) => !isOwn(queued));
  if (!target) throw refused(named.length > 0 ? "is_leader" : "not_found");
  if (!target.candidate.transferable) throw refused("not_transferable", target);
  const between = queue.slice(0, queue.indexOf(target)).filter((queued) => !isOwn(queued));
  const blocker = between.find(({ candidate }) => !candidate.transferable);
  if (blocker) throw refused("blocked", blocker);
  return { target, between };
}

/** A leader has named it, and not only a candidate whose turn had come. */
const isChosen = ({ candidate: { revision }, modRevision }: QueuedKey): boolean => modRevision > revision;

/**
 * The candidate that a candidate hands over to when its turn has come; undefined: it leads. `tried`: the leases to which this campaign has
 * handed over before. Candidates that disagree could pass the leadership on for ever.
 */
export function preferred(
  place: Place,
  queue: readonly QueuedKey[],
  { eligible, tried }: Pick<CheckedCandidate, "eligible"> & { readonly tried: ReadonlySet<bigint> },
): ElectionCandidate | undefined {
  const n = queue.findIndex(isAt(place));
  const mine = queue[n];
  if (!mine || isChosen(mine)) return undefined;
  const own = mine.candidate;
  const end = queue.findIndex(({ candidate }, at) => at > n && !candidate.transferable);
  const all = queue.slice(n, end === -1 ? undefined : end).map(({ candidate }) => candidate);
  const able = all.filter((each) => eligible(each, all) && (each === own || !tried.has(each.leaseId)));
  const highest = Math.max(...able.map(({ priority }) => priority));
  const best = able.find(({ priority }) => priority === highest);
  return best === own ? undefined : best;
}

/** The way in which the key of a leader leaves the queue, so that the candidate leads that `choose` finds. */
export class HandOver {
  /** Why the leader has only left. */
  failure: TransferError | EtcdRefusedError | undefined;
  #doubted = false;

  constructor(
    private readonly services: EtcdServices,
    private readonly place: Place,
    private readonly how: {
      readonly next: Next;
      /** Called with what is in the queue if that has changed. @throws if there is nobody to hand over to. */
      readonly choose: (queue: readonly QueuedKey[]) => Next;
      /** The target leads whatever priority waits. */
      readonly chosen?: boolean;
      /** When it settles, the transaction may be sent. */
      readonly workEnded?: Promise<unknown> | undefined;
    },
  ) {}

  readonly by: LeaveBy = async (leave, given) => {
    await this.how.workEnded;
    const onUnanswered = (): void => {
      this.#doubted = true;
      given.onUnanswered?.();
    };
    const policy = { ...given, onUnanswered };
    const once = { ...policy, what: `hand over "${this.place.name}"`, untilConfirmed: false };
    let { next } = this.how;
    try {
      for (;;) {
        const answer = await this.#step(leave, next, once);
        if (!("ahead" in answer)) return answer;
        next = answer.ahead ?? this.how.choose(answer.queue);
      }
    } catch (error) {
      if (!(error instanceof TransferError || error instanceof EtcdRefusedError)) throw error;
      this.failure = error;
      return this.#executed(await this.services.client.txn(leave, policy));
    }
  };

  /** An answer that ends it, or those that are still before the target, or the queue as it is now. */
  async #step(
    leave: Txn,
    { target, between }: Next,
    policy: CallPolicy,
  ): Promise<TxnAnswer | { readonly ahead: Next | undefined; readonly queue: readonly QueuedKey[] }> {
    const moved = between.slice(0, MAX_MOVED);
    const rest = between.slice(MAX_MOVED);
    const { path } = this.place;
    const ranges = candidateRanges(path);
    const reads = ranges.map((range) => ({ kind: "range", ...range }) as const);
    const txn = {
      queues: leave.queues,
      compare: [...leave.compare, ...[target, ...moved].map(isThere)],
      success: [...moved.flatMap(deletes), ...(rest.length > 0 ? [] : leave.success)],
      failure: [...reads, ...leave.failure],
    };
    const isMarked = this.how.chosen && rest.length === 0;
    const answer = await (isMarked
      ? this.#sendMarking(target, txn, policy)
      : this.services.client.txn(txn, policy));
    if (answer.succeeded) return rest.length > 0 ? { ahead: { target, between: rest }, queue: [] } : answer;
    const queue = queuedKeys(path, answer.ranges);
    if (queue.some(isAt(this.place))) return { ahead: undefined, queue };
    // Sent twice by a proxy: the second answer shows what the first has done.
    const isDone = queue[0] !== undefined && isAt(target.candidate)(queue[0]);
    return isDone ? { ...answer, succeeded: true } : this.#executed(answer);
  }

  /** Shows the target that it is chosen, unless etcd rejects that. */
  async #sendMarking(
    { candidate: { key, leaseId }, value }: QueuedKey,
    txn: Txn,
    policy: CallPolicy,
  ): Promise<TxnAnswer> {
    const { client } = this.services;
    const success: Operation[] = [{ kind: "put", key, value, leaseId }, ...txn.success];
    try {
      // It is not the lease of this session.
      return await client.txn({ ...txn, success }, { ...policy, onLeaseGone: undefined });
    } catch (error) {
      if (!(error instanceof EtcdRefusedError || error instanceof LeaseNotFoundError)) throw error;
      return client.txn(txn, policy);
    }
  }

  /** Our key is gone: an unanswered attempt has deleted it, or one that a proxy has repeated, or another client. */
  #executed(answer: TxnAnswer): TxnAnswer {
    const mayBeOurs = this.#doubted || this.services.path.requestsAreRepeated;
    return { ...answer, succeeded: answer.succeeded || mayBeOurs };
  }
}

const isThere = ({ candidate: { key, revision } }: QueuedKey): Compare => ({
  kind: "created at",
  key,
  revision,
});

/** What they say of themselves, they put again or delete. */
const deletes = ({ candidate: { key }, delayKey }: QueuedKey): Operation[] => [
  { kind: "delete", key },
  ...(delayKey === undefined ? [] : [{ kind: "delete", key: delayKey } as const]),
];
