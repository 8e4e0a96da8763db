import type { KeyValue, RangeAnswer, TxnAnswer } from "../../../src/etcd/port.js";
import { covers } from "../../lab/model/etcd.js";
import type { Step } from "../../lab/runner/history.js";
import type { Failure, TraceEvent } from "./events.js";
import { NameTrace, type ChangedKey } from "./name-trace.js";
import { Joints, verdictOf } from "./joint.js";
import type { Answered, JoinRequest, LeaveRequest } from "./places.js";
import type { Shown } from "./reads.js";
import { Rejected } from "./rejected.js";
import { partsOf, readOf, readsOf, requestsOf, type ReadRequest, type Request } from "./requests.js";
import { isRewrite, type RewriteRequest } from "./rewrites.js";
import type { SessionTrace, TraceStats } from "./session-trace.js";
import { ProcessWatches } from "./watched.js";

export interface Checked extends TraceStats {
  /** The step that the model does not have, and what it would allow instead. */
  readonly rejected: string | undefined;
}

const NO_KEYS: ReadonlySet<string> = new Set();

type Of<Is extends TraceEvent["is"]> = Extract<TraceEvent, { is: Is }>;

/** Whether the protocol steps of a run are a path of the model. `locks`: the prefix of the names. */
export function checkTrace(events: readonly TraceEvent[], locks: string): Checked {
  const check = new TraceCheck(events, locks);
  let rejected: string | undefined;
  try {
    for (const [i, event] of events.entries()) {
      if (INPUTS.has(event.is)) check.turn(events, i);
      check.follow(event);
    }
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    rejected = error.message;
  }
  return { ...check.stats, rejected };
}

/** What happens to a client from outside: it does nothing between two of these but what follows from the first. */
const INPUTS: ReadonlySet<TraceEvent["is"]> = new Set([
  "change",
  "txns answered",
  "range answered",
  "failed",
  "watch answered",
  "stream over",
]);

class TraceCheck {
  readonly stats = { steps: 0, largest: 0, counts: {} as Record<string, number> };
  readonly #names = new Map<string, NameTrace>();
  readonly #watches = new Map<number, ProcessWatches>();
  readonly #sent = new Map<number, readonly Sent[]>();
  readonly #reads = new Map<number, ReadRequest>();
  readonly #joints = new Joints();
  readonly #values = new Map<string, number>();
  /** By process, call and name: the key that the call was granted. */
  readonly #keyOf = new Map<string, string>();
  /** The incarnations of processes that a fault has stopped. */
  readonly #stopped = new Set<string>();
  readonly #byHand: ReadonlySet<bigint>;

  constructor(
    events: readonly TraceEvent[],
    private readonly locks: string,
  ) {
    this.#byHand = new Set(
      events.flatMap((event) =>
        event.is === "step" && event.step.k === "nemesis" ? (event.step.took ?? []) : [],
      ),
    );
  }

  /** The watches that a client asks for because of this, and not because of a timer. */
  turn(events: readonly TraceEvent[], from: number): void {
    const input = events[from]!;
    const coming = new Map<number, Set<string>>();
    for (let i = from + 1; i < events.length && !INPUTS.has(events[i]!.is); i++) {
      const event = events[i]!;
      if (event.is !== "watch" || !("at" in input)) continue;
      const { process, at, request } = event;
      if (process !== input.process || at !== input.at) continue;
      const keys = coming.get(process) ?? new Set();
      coming.set(process, keys.add(String(request.key)));
    }
    for (const [process, watches] of this.#watches) watches.turn(coming.get(process) ?? NO_KEYS);
    for (const [process, keys] of coming) this.#watchesOf(process).turn(keys);
  }

  follow(event: TraceEvent): void {
    switch (event.is) {
      case "txns":
        return this.#txns(event);
      case "txns answered":
        return this.#txnsAnswered(event);
      case "range":
        return this.#range(event);
      case "range answered":
        return this.#rangeAnswered(event);
      case "failed":
        return this.#failed(event);
      case "revoke":
        return this.#over(event.leaseId.toString(16), "revokes its lease");
      case "change":
        return this.#change(event);
      case "step":
        return this.#reported(event.step);
      case "watch":
      case "unwatch":
      case "watch answered":
      case "stream over":
        return this.#watch(event);
    }
  }

  #txns({ txns, call, process }: Of<"txns">): void {
    const sent = txns.map((txn) => ({
      requests: requestsOf(txn, this.locks),
      reads: readsOf(txn, this.locks),
    }));
    this.#sent.set(call, sent);
    assertApart(sent);
    for (const { requests, reads } of sent) {
      this.#jointSent(requests);
      for (const request of requests) this.#requestSent(request, process);
      for (const read of reads) this.#readSent(read, call);
    }
  }

  #jointSent(requests: readonly Request[]): void {
    const joins = requests.filter(isJoin);
    const [first] = joins;
    if (first === undefined) return;
    const keys = joins.map(({ key }) => key).join(" and ");
    this.#joints.sent(`session ${first.lease} sends the ${first.is} of ${keys}`, joins);
    if (joins.length > 1) this.#count(`joint ${first.is}`);
  }

  #requestSent(request: Request, process: number): void {
    if (request.is === "other") return;
    const { name, key, lease } = request;
    const session = this.#name(name).session(lease, process, this.#watchesOf(process));
    const what = `session ${lease} sends the ${request.is} of ${key}`;
    if (request.is === "unknown") throw new Rejected(`${what}: no such transaction`, []);
    this.#count(request.is);
    if (isRewrite(request)) this.#rewriteSent(what, request);
    else if (request.is === "leave") session.leaveSent(`${what}${guardOf(request)}`, this.#valued(request));
    else session.joinSent(what, request, this.#value(request.value));
  }

  #txnsAnswered({ call, answers }: Of<"txns answered">): void {
    for (const [i, { requests, reads }] of (this.#sent.get(call) ?? []).entries()) {
      const answer = answers[i]!;
      const { header, ranges, succeeded } = answer;
      for (const [j, read] of reads.entries()) {
        const range = ranges[j];
        if (range) this.#readAnswered(read, call, { header, ...range });
      }
      const joins = requests.filter(isJoin);
      if (joins.length > 1 && !succeeded) this.#jointRefused(joins, answer);
      else for (const request of requests) this.#requestAnswered(request, answer);
    }
    this.#sent.delete(call);
  }

  #requestAnswered(request: Request, answer: TxnAnswer): void {
    const session = this.#sessionOf(request);
    if (!session || request.is === "other" || request.is === "unknown") return;
    if (isRewrite(request)) return this.#rewriteAnswered(request, answer);
    const shown = this.#answered(request, answer);
    const what = answerTo(request, shown.done ? `done at revision ${shown.revision}` : "refused");
    if (request.is === "leave") session.leaveAnswered(what, this.#valued(request), shown);
    else session.joinAnswered(what, request, this.#value(request.value), shown);
  }

  /** Each name has the outcome, and at least one of them is the reason. */
  #jointRefused(parts: readonly JoinRequest[], { header, ranges }: TxnAnswer): void {
    const revision = Number(header.revision);
    const values = parts.map(({ value }) => this.#value(value));
    const owns = parts.map((_, i) => this.#ownIn(ranges[i]?.kvs[0]));
    const verdict = verdictOf(parts, owns, values);
    const what = (part: JoinRequest): string => answerTo(part, "refused, with those of other names");
    const mayRefuse = (part: JoinRequest, i: number): boolean =>
      this.#sessionOf(part)?.refuses(part, values[i]!, revision) ?? true;
    if (!parts.some(mayRefuse)) throw new Rejected(`${what(parts[0]!)}: no name is a reason`, []);
    for (const [i, part] of parts.entries()) {
      const shown = { done: false, revision, own: owns[i], before: undefined, asked: false, verdict };
      this.#sessionOf(part)?.jointRefused(what(part), part, values[i]!, shown);
    }
  }

  #rewriteSent(what: string, request: RewriteRequest): void {
    const { name, key, lease, created, value } = request;
    const queue = this.#name(name);
    queue.rewrites.sent(what, request, queue.valueOf(key) === this.#value(value));
    queue.known(lease)?.rewriteSent(`${what}, created at ${created}`, { key, revision: created });
  }

  #rewriteAnswered(request: RewriteRequest, { succeeded, header, ranges }: TxnAnswer): void {
    const { name, key, lease, created } = request;
    const found = ranges[0]?.kvs[0];
    const own = found && { created: Number(found.createRevision), modified: Number(found.modRevision) };
    const revision = Number(header.revision);
    this.#name(name).rewrites.answered(request, { done: succeeded, revision, own });
    const isLost = !succeeded && request.is === "proclaim" && own?.created !== created;
    const what = `session ${lease} is answered that ${key} is not the key that it proclaims with`;
    const shown = { revision, created: own?.created ?? 0 };
    if (isLost) this.#name(name).known(lease)?.rewriteRefused(what, key, shown);
  }

  /** How often the trace has a step, for tests that it is checked at all. */
  #count(step: string): void {
    const { counts } = this.stats;
    counts[step] = (counts[step] ?? 0) + 1;
  }

  #answered(request: Request, { succeeded, header, ranges }: TxnAnswer): Answered {
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
    return kv && { value: this.#value(kv.value), created: Number(kv.createRevision) };
  }

  #range({ range, call }: Of<"range">): void {
    const read = readOf(range, this.locks);
    this.#reads.set(call, read);
    this.#readSent(read, call);
  }

  #readSent(read: ReadRequest, call: number): void {
    if (read.is !== "queue") return;
    this.#count("read");
    const what = `the place created at ${read.place} reads the queue ${read.name}`;
    this.#ownerOf(read.name, read.place).queueReadSent(what, { ...read, call });
  }

  #rangeAnswered({ call, answer }: Of<"range answered">): void {
    const read = this.#reads.get(call) ?? { is: "other" };
    this.#reads.delete(call);
    this.#readAnswered(read, call, answer);
  }

  #readAnswered(read: ReadRequest, call: number, answer: RangeAnswer): void {
    if (read.is === "queue") {
      const what = `the place created at ${read.place} is answered what the queue ${read.name} is`;
      const session = this.#ownerOf(read.name, read.place);
      session.queueReadAnswered(what, { ...read, call }, shownBy(answer, read.place));
    } else if (read.is === "key") {
      const session = this.#names.get(read.name)?.known(read.lease);
      const what = `session ${read.lease} is answered what ${read.key} is`;
      session?.keyReadAnswered(what, read.key, {
        created: Number(answer.kvs[0]?.createRevision ?? 0),
        revision: Number(answer.header.revision),
      });
    }
  }

  #failed({ call, why }: Of<"failed">): void {
    this.#reads.delete(call);
    for (const { requests } of this.#sent.get(call) ?? [])
      for (const request of requests) this.#requestFailed(request, why);
    this.#sent.delete(call);
  }

  #requestFailed(request: Request, why: Failure): void {
    const session = this.#sessionOf(request);
    if (!session || request.is === "other" || request.is === "unknown") return;
    const what = `session ${request.lease}'s ${request.is} of ${request.key} is not answered`;
    if (isRewrite(request)) this.#name(request.name).rewrites.failed(request, why.inDoubt);
    else if (request.is !== "leave")
      session.joinFailed(what, request, this.#value(request.value), kindOf(why));
    else if (why.inDoubt) session.leaveUnanswered(what, this.#valued(request));
  }

  #change({ change, leaseEnded }: Of<"change">): void {
    const byName = new Map<string, ChangedKey[]>();
    for (const { kind, kv } of change.events) {
      const key = kv.key.toString();
      if (!key.startsWith(this.locks)) continue;
      const { name } = partsOf(key);
      byName.set(name, [...(byName.get(name) ?? []), { key, kv: kind === "PUT" ? kv : undefined }]);
    }
    this.#joints.put(change);
    const byHand = this.#byHand.has(change.revision);
    const more = { revision: Number(change.revision), byHand, leaseEnded, stopped: this.#stopped };
    for (const [name, events] of byName) {
      const keys = events.map(({ key, kv }) => `${kv ? "puts" : "deletes"} ${key}`).join(", ");
      this.#name(name).changed(`etcd ${keys} at revision ${change.revision}`, events, more);
    }
  }

  #watch(event: Extract<TraceEvent, { stream: number }>): void {
    const { keys, over } = this.#watchesOf(event.process).follow(event);
    for (const name of new Set(keys.map((key) => partsOf(key).name)))
      for (const session of this.#names.get(name)?.of(event.process) ?? []) session.received(keys, over);
  }

  /** What was reported to a caller, or claimed by it. */
  #reported(step: Step): void {
    if (step.k === "ok" && step.token !== undefined && step.key !== undefined) {
      this.#keyOf.set(`${step.p} ${step.id} ${step.lock}`, step.key);
      if (step.held) this.#holds(step, "is granted its hold");
    } else if (step.k === "nemesis" && step.effect === "stops-worker") {
      if (step.on) this.#stopped.add(step.target);
      else this.#stopped.delete(step.target);
    } else if (step.k === "claim" && step.held) this.#holds(step, "claims its hold");
    else if (step.k === "end" && step.reason === "deleted") {
      this.#lost(step);
    } else if (step.k === "end" && step.reason !== "released") {
      const place = this.#placeOf(step);
      if (place) this.#over(partsOf(place.key).lease, `notifies its holders of the loss: ${step.reason}`);
    }
  }

  /** A hold of several names is lost with any of its keys. */
  #lost(step: OnHold): void {
    const place = this.#placeOf(step);
    if (!place?.session) return;
    const what = `${place.what} is notified that the key of its hold is gone`;
    const parts = this.#joints.at(place);
    if (!parts) return place.session.lost(what, place);
    const lost = parts.filter(
      (part) => this.#sessionOf(part)?.mayHaveLost({ ...place, key: part.key }) ?? true,
    );
    const [only, ...more] = lost;
    if (!only) throw new Rejected(`${what}: each name of it is held`, []);
    if (more.length === 0) this.#sessionOf(only)?.lost(what, { ...place, key: only.key });
  }

  #holds(step: OnHold & Pick<Step, "k">, how: string): void {
    const place = this.#placeOf(step);
    if (!place?.session) throw new Rejected(`${step.p} ${how} "${step.lock}" without a place`, []);
    this.#count(step.k === "ok" ? "grant" : "claim");
    place.session.holds(`${place.what} ${how}`, place);
  }

  #placeOf({ p, id, lock, token }: OnHold) {
    const key = this.#keyOf.get(`${p} ${id} ${lock}`);
    if (key === undefined) return undefined;
    const { name, lease } = partsOf(key);
    const session = this.#names.get(name)?.known(lease);
    return {
      session,
      key,
      revision: Number(token),
      what: `${p}, call ${id}, with ${key} created at ${token},`,
    };
  }

  #over(lease: string, how: string): void {
    for (const name of this.#names.values()) name.known(lease)?.over(`session ${lease} ${how}`);
  }

  #ownerOf(name: string, revision: number): SessionTrace {
    const session = this.#names.get(name)?.ownerOf(revision);
    if (session) return session;
    throw new Rejected(`the queue ${name} is read for a place created at ${revision}, which never was`, []);
  }

  #sessionOf(request: Request): SessionTrace | undefined {
    return request.is === "other" ? undefined : this.#names.get(request.name)?.known(request.lease);
  }

  #name(name: string): NameTrace {
    const trace = this.#names.get(name) ?? new NameTrace((value) => this.#value(value), this.stats);
    this.#names.set(name, trace);
    return trace;
  }

  #watchesOf(process: number): ProcessWatches {
    const watches = this.#watches.get(process) ?? new ProcessWatches();
    this.#watches.set(process, watches);
    return watches;
  }

  /** Values are numbers in the model. */
  #value(value: string): number {
    const number = this.#values.get(value) ?? this.#values.size + 1;
    this.#values.set(value, number);
    return number;
  }

  #valued<R extends { readonly value: string }>(request: R): R {
    return { ...request, value: String(this.#value(request.value)) };
  }
}

interface OnHold {
  readonly p: string;
  readonly id: number;
  readonly lock: string;
  readonly token?: bigint;
}

/** A transaction, by what it asks of each name. */
interface Sent {
  readonly requests: readonly Request[];
  readonly reads: readonly ReadRequest[];
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

const isJoin = (request: Request): request is JoinRequest => request.is === "join" || request.is === "try";

const answerTo = ({ lease, is, key }: JoinRequest | LeaveRequest, result: string): string =>
  `session ${lease} gets the answer to the ${is} of ${key}: ${result}`;

const guardOf = ({ created }: Extract<Request, { is: "leave" }>): string =>
  created > 0 ? `, created at ${created}` : ", by its value";

const kindOf = ({ inDoubt, leaseGone }: Failure) =>
  leaseGone ? "lease gone" : inDoubt ? "in doubt" : "not executed";

const shownBy = ({ header, kvs: [own, below] }: RangeAnswer, place: number): Shown => {
  const mine = own !== undefined && Number(own.createRevision) === place;
  const before = mine && below ? Number(below.createRevision) : undefined;
  return { revision: Number(header.revision), mine, before };
};
