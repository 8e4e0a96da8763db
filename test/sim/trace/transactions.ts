import type { KeyValue, TxnAnswer } from "../../../src/etcd/port.js";
import { covers } from "../../lab/model/etcd.js";
import type { EventOf, Failure } from "./events.js";
import type { Queues } from "./queue/queues.js";
import { isRewrite, type RewriteRequest } from "./queue/rewrites.js";
import type { ReadCheck } from "./reads.js";
import { Rejected } from "./rejected.js";
import {
  isJoin,
  readsOf,
  requestsOf,
  type JoinRequest,
  type LeaveRequest,
  type ReadRequest,
  type Request,
} from "./requests.js";
import { verdictOf } from "./session/joint-refusal.js";
import type { Answered } from "./session/places.js";
import type { JoinId } from "./session/session-trace.js";

/** A transaction, by what it asks of each name. */
interface Sent {
  readonly requests: readonly Request[];
  readonly reads: readonly ReadRequest[];
}

/** The transactions that clients send, and the answers that they get. */
export class TransactionCheck {
  readonly #sent = new Map<number, readonly Sent[]>();

  constructor(
    private readonly queues: Queues,
    private readonly reads: ReadCheck,
  ) {}

  sent({ txns, call, process }: EventOf<"txns">): void {
    const { locks } = this.queues;
    const sent = txns.map((txn) => ({ requests: requestsOf(txn, locks), reads: readsOf(txn, locks) }));
    this.#sent.set(call, sent);
    assertApart(sent);
    for (const { requests, reads } of sent) {
      this.#jointSent(requests);
      for (const request of requests) this.#requestSent(request, process);
      for (const read of reads) this.reads.sent(read, call);
    }
  }

  #jointSent(requests: readonly Request[]): void {
    const joins = requests.filter(isJoin);
    const [first] = joins;
    if (first === undefined) return;
    const keys = joins.map(({ key }) => key).join(" and ");
    this.queues.joints.sent(`session ${first.lease} sends the ${first.is} of ${keys}`, joins);
    if (joins.length > 1) this.queues.count(`joint ${first.is}`);
  }

  #requestSent(request: Request, process: number): void {
    if (request.is === "other") return;
    const { name, key, lease } = request;
    const session = this.queues.of(name).session(lease, process, this.queues.watches.of(process));
    const what = `session ${lease} sends the ${request.is} of ${key}`;
    if (request.is === "unknown") throw new Rejected(`${what}: no such transaction`, []);
    this.queues.count(request.is);
    if (isRewrite(request)) this.#rewriteSent(what, request);
    else if (request.is === "leave") session.leaveSent(`${what}${guardOf(request)}`, this.#valued(request));
    else session.joinSent(what, request, this.queues.value(request.value));
  }

  #rewriteSent(what: string, request: RewriteRequest): void {
    const { name, key, lease, created, value } = request;
    const queue = this.queues.of(name);
    queue.rewrites.sent(what, request, queue.valueOf(key) === this.queues.value(value));
    queue.known(lease)?.rewriteSent(`${what}, created at ${created}`, { key, revision: created });
  }

  answered({ call, answers }: EventOf<"txns answered">): void {
    for (const [i, { requests, reads }] of (this.#sent.get(call) ?? []).entries()) {
      const answer = answers[i]!;
      const { header, ranges, succeeded } = answer;
      for (const [j, read] of reads.entries()) {
        const range = ranges[j];
        if (range) this.reads.answered(read, call, { header, ...range });
      }
      const joins = requests.filter(isJoin);
      if (joins.length > 1 && !succeeded) this.#jointRefused(joins, answer);
      else for (const request of requests) this.#requestAnswered(request, answer);
    }
    this.#sent.delete(call);
  }

  #requestAnswered(request: Request, answer: TxnAnswer): void {
    const session = this.queues.sessionOf(request);
    if (!session || request.is === "other" || request.is === "unknown") return;
    if (isRewrite(request)) return this.#rewriteAnswered(request, answer);
    if (isRefusedByMark(request, answer))
      return session.joinFailed(answerTo(request, "refused"), this.#joinId(request), "not executed");
    const shown = this.#shownBy(answer, request);
    const what = answerTo(request, shown.done ? `done at revision ${shown.revision}` : "refused");
    if (request.is === "leave") session.leaveAnswered(what, this.#valued(request), shown);
    else session.joinAnswered(what, this.#joinId(request), shown);
  }

  /** Each name has the outcome, and at least one of them is the reason. */
  #jointRefused(parts: readonly JoinRequest[], { header, ranges }: TxnAnswer): void {
    const revision = Number(header.revision);
    const joins = parts.map((part) => this.#joinId(part));
    const owns = parts.map((_, i) => this.#ownIn(ranges[i]?.kvs[0]));
    const values = joins.map(({ value }) => value);
    const verdict = verdictOf(parts, owns, values);
    const what = (part: JoinRequest): string => answerTo(part, "refused, with those of other names");
    const mayRefuse = (part: JoinRequest, i: number): boolean =>
      this.queues.sessionOf(part)?.refuses(joins[i]!, revision) ?? true;
    if (!parts.some(mayRefuse)) throw new Rejected(`${what(parts[0]!)}: no name is a reason`, []);
    for (const [i, part] of parts.entries()) {
      const shown = { done: false, revision, own: owns[i], before: undefined, asked: false, verdict };
      this.queues.sessionOf(part)?.jointRefused(what(part), joins[i]!, shown);
    }
  }

  #rewriteAnswered(request: RewriteRequest, { succeeded, header, ranges }: TxnAnswer): void {
    const { name, key, lease, created } = request;
    const queue = this.queues.of(name);
    const found = ranges[0]?.kvs[0];
    const own = found && { created: Number(found.createRevision), modified: Number(found.modRevision) };
    const revision = Number(header.revision);
    queue.rewrites.answered(request, { done: succeeded, revision, own });
    const isLost = !succeeded && request.is === "proclaim" && own?.created !== created;
    const what = `session ${lease} is answered that ${key} is not the key that it proclaims with`;
    const shown = { revision, created: own?.created ?? 0 };
    if (isLost) queue.known(lease)?.rewriteRefused(what, key, shown);
  }

  failed({ call, why }: EventOf<"failed">): void {
    const sent = this.#sent.get(call) ?? [];
    // One transaction may be the reason for the refusal of a shared request: each is sent again alone.
    const known = sent.length > 1 ? { ...why, leaseGone: false } : why;
    for (const { requests } of sent) for (const request of requests) this.#requestFailed(request, known);
    this.#sent.delete(call);
  }

  #requestFailed(request: Request, why: Failure): void {
    const session = this.queues.sessionOf(request);
    if (!session || request.is === "other" || request.is === "unknown") return;
    const what = `session ${request.lease}'s ${request.is} of ${request.key} is not answered`;
    if (isRewrite(request)) this.queues.of(request.name).rewrites.failed(request, why.inDoubt);
    else if (request.is !== "leave") session.joinFailed(what, this.#joinId(request), kindOf(why));
    else if (why.inDoubt) session.leaveUnanswered(what, this.#valued(request));
  }

  #shownBy({ succeeded, header, ranges }: TxnAnswer, request: JoinRequest | LeaveRequest): Answered {
    const [own, below] = ranges.find((range) => range !== undefined)?.kvs ?? [];
    return {
      done: succeeded,
      revision: Number(header.revision),
      own: isJoin(request) && !succeeded ? this.#ownIn(own) : undefined,
      before: succeeded && below ? Number(below.createRevision) : undefined,
      asked: request.is === "join" && request.asks,
    };
  }

  #ownIn(kv: KeyValue | undefined): Answered["own"] {
    return kv && { value: this.queues.value(kv.value), created: Number(kv.createRevision) };
  }

  #joinId({ key, value }: JoinRequest): JoinId {
    return { key, value: this.queues.value(value) };
  }

  #valued(request: LeaveRequest): LeaveRequest {
    return { ...request, value: String(this.queues.value(request.value)) };
  }
}

const namesOf = ({ requests, reads }: Sent): Set<string> =>
  new Set([...requests, ...reads].flatMap((each) => (each.is === "other" ? [] : [each.name])));

/** Of a request of several transactions, none may touch a queue of another. */
function assertApart(sent: readonly Sent[]): void {
  const names = sent.flatMap((each) => [...namesOf(each)]);
  const clash = names.find((name, i) => names.some((other, j) => i !== j && covers(name, other)));
  if (clash !== undefined)
    throw new Rejected(`one request has two transactions of the queue ${clash}: they share no batch`, []);
}

/** It found no key of its own, and an empty queue: the slot of `once` must not be run, or has been tried before. */
const isRefusedByMark = (request: Request, { succeeded, ranges }: TxnAnswer): request is JoinRequest => {
  const [own, , , oldest] = ranges;
  return isJoin(request) && request.marks === true && !succeeded && !own?.count && !oldest?.count;
};

const answerTo = ({ lease, is, key }: JoinRequest | LeaveRequest, result: string): string =>
  `session ${lease} gets the answer to the ${is} of ${key}: ${result}`;

const guardOf = ({ created }: LeaveRequest): string =>
  created > 0 ? `, created at ${created}` : ", by its value";

const kindOf = ({ inDoubt, leaseGone }: Failure) =>
  leaseGone ? "lease gone" : inDoubt ? "in doubt" : "not executed";
