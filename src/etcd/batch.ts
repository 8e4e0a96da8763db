// Group commit: transactions that are sent in one turn, or while other requests are in flight, leave together, in one request.
// - A transaction that finds nothing in flight leaves at the end of its turn. None waits forever: names take turns, and a name that was
//   passed over is not overtaken by those that conflict with it.
// - If etcd rejects a shared request, each of its transactions is sent again alone. If a shared request stays unanswered,
//   each of its transactions is in doubt.
import { EtcdRefusedError } from "../errors.js";
import { AbortFanOut } from "../base/util/abort.js";
import type { Clock, Timer } from "../base/util/clock.js";
import { inOwnContext, nextTick } from "../base/util/own-context.js";
import type { MemberPool } from "./member-pool.js";
import {
  type AnswerKind,
  type CallOptions,
  gaveUp,
  type Header,
  inDoubt,
  NotSentError,
  refused,
  type Txn,
  type TxnAnswer,
  UnansweredError,
} from "./port.js";
import type { AttemptLimits } from "./retry.js";

/** Where the next shorter name that `name.slice(0, end)` lies under ends; 0 or less: there is none. `a/b/c` lies under `a/b` and `a`. */
const endAbove = (name: string, end: number): number => name.lastIndexOf("/", end - 1);

/**
 * A set of queue names. A queue's keys begin with its name and a slash, so the queue of `a` also reads those of `a/b`: two
 * names conflict if they are equal, or if one lies under the other.
 */
export class ConflictSet {
  /** Names that are not in the sets yet. Most requests have one transaction and need no sets. */
  #unindexed: (readonly string[])[] = [];
  #sets: NameSets | undefined;

  add(names: readonly string[]): void {
    this.#unindexed.push(names);
  }

  /**
   * Whether any of `names` conflicts with the set. Indexes the names that were added since the last call. Apart from that, the
   * cost depends on the depth of `names`, not on the size of the set.
   */
  conflict(names: readonly string[]): boolean {
    for (const added of this.#unindexed) this.#index(added);
    this.#unindexed = [];
    const sets = this.#sets;
    return sets !== undefined && names.some((name) => conflicts(sets, name));
  }

  #index(names: readonly string[]): void {
    const { own, above } = (this.#sets ??= { own: new Set(), above: new Set() });
    for (const name of names) {
      own.add(name);
      for (let end = endAbove(name, name.length); end > 0; end = endAbove(name, end))
        above.add(name.slice(0, end));
    }
  }
}

interface NameSets {
  readonly own: Set<string>;
  /** All names that those in `own` lie under. */
  readonly above: Set<string>;
}

function conflicts({ own, above }: NameSets, name: string): boolean {
  if (own.has(name) || above.has(name)) return true;
  for (let end = endAbove(name, name.length); end > 0; end = endAbove(name, end))
    if (own.has(name.slice(0, end))) return true;
  return false;
}

/** A transaction between its call and its answer. It ends once. */
class PendingTxn {
  readonly answer: Promise<TxnAnswer>;
  /** Transactions of one line conflict with one another. */
  readonly line: string;
  /** The request that it is in. */
  request: BatchRequest | undefined;
  #resolve!: (answer: TxnAnswer) => void;
  #reject!: (reason: unknown) => void;
  #stopListening: (() => void) | undefined;
  #ended = false;

  constructor(
    readonly txn: Txn,
    readonly limits: AttemptLimits,
    /** The transaction must not share a request. */
    public alone: boolean,
  ) {
    this.line = txn.queues.join("\n");
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** The caller may stop waiting: `onAbort` then, unless the transaction has ended before. */
  listen(aborts: AbortFanOut, onAbort: () => void): void {
    this.#stopListening = aborts.add(this.limits.signal, onAbort);
  }

  succeed(answer: TxnAnswer): void {
    if (this.#end()) this.#resolve(answer);
  }

  fail(error: unknown): void {
    if (this.#end()) this.#reject(error);
  }

  /** The caller has stopped waiting. A request in flight may still be executed. */
  abandon(): void {
    this.fail(this.request?.givenUp() ?? this.limits.signal?.reason);
  }

  /** False: it has ended before. */
  #end(): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.#stopListening?.();
    this.request?.left();
    return true;
  }
}

/** One request with several transactions. A caller that gives up does not affect the others; the last one cancels it. */
class BatchRequest {
  readonly options: CallOptions;
  #cancel: AbortController | undefined;
  readonly #timers: Timer[] = [];
  /** How many transactions still wait for its answer. */
  #waiting: number;
  #ended = false;
  #host = "";
  #sent = false;

  /** The request gets the longest time limit; transactions with a shorter one have their own timers. */
  constructor(
    private readonly batch: readonly PendingTxn[],
    clock: Clock,
  ) {
    this.#waiting = batch.length;
    const limits = batch.map(({ limits }) => limits.timeoutMs());
    const timeoutMs = Math.max(...limits);
    for (const [n, pending] of batch.entries()) {
      const limitMs = limits[n]!;
      pending.request = this;
      if (limitMs < timeoutMs) this.#timers.push(clock.after(limitMs, () => this.#tooLate(pending, limitMs)));
    }
    this.options = { timeoutMs, signal: this.#signal(), onSent: () => void (this.#sent = true) };
  }

  /** One attempt on the member in use. All transactions are applied, or none. */
  send(pool: MemberPool): Promise<readonly TxnAnswer[]> {
    const txns = this.batch.map(({ txn }) => txn);
    try {
      this.#host = pool.current.host;
    } catch (error) {
      return Promise.reject(error);
    }
    return pool.attempt((member, options) => member.txns(txns, options), this.options, answersTo(txns));
  }

  /** The error of a transaction whose caller gave up. */
  givenUp(): UnansweredError {
    return gaveUp(this.#inDoubt, this.#host);
  }

  /** Whether a transaction that leaves may be executed. One that is not sent yet may be, as long as others wait for the request. */
  get #inDoubt(): boolean {
    return this.#sent || this.#waiting > 1;
  }

  succeed(answers: readonly TxnAnswer[]): void {
    this.#finish();
    this.batch.forEach((pending, i) => {
      const answer = answers[i];
      if (answer === undefined) return;
      pending.limits.answered?.(this.#host);
      pending.succeed(answer);
    });
  }

  failed(error: Error): void {
    for (const pending of this.remaining()) pending.fail(error);
  }

  /** The transactions that still wait for an answer, which will not come: the request has failed. */
  remaining(): PendingTxn[] {
    this.#finish();
    return this.batch.filter((pending) => !pending.ended);
  }

  /** One of its transactions has ended. */
  left(): void {
    if (--this.#waiting === 0 && !this.#ended) this.#cancel?.abort();
  }

  #finish(): void {
    this.#ended = true;
    for (const timer of this.#timers) timer.cancel();
    for (const pending of this.batch) pending.request = undefined;
  }

  /** A transaction that is alone in its request is cancelled by its own signal. */
  #signal(): AbortSignal | undefined {
    const [only] = this.batch;
    if (only && this.batch.length === 1) return only.limits.signal;
    this.#cancel = new AbortController();
    return this.#cancel.signal;
  }

  /** Fails as if `pending` had been alone: it is repeated and does not wait for the answers of the others. */
  #tooLate(pending: PendingTxn, limitMs: number): void {
    const why = `no ${this.#sent ? "answer" : "connection"} within ${Math.round(limitMs)} ms`;
    pending.fail(new UnansweredError(why, { inDoubt: this.#inDoubt, host: this.#host }));
  }
}

/** As etcd counts them against its limit. */
const operationsOf = ({ compare, success, failure }: Txn): number =>
  Math.max(compare.length, success.length, failure.length);

/** Bytes of the values that it puts: most of its size, if it is large. */
const sizeOf = ({ success }: Txn): number =>
  success.reduce((sum, each) => sum + (each.kind === "put" ? Buffer.byteLength(each.value) : 0), 0);

const asTooMany = (error: unknown): EtcdRefusedError | undefined =>
  error instanceof EtcdRefusedError && /too many operations in txn/.test(error.details) ? error : undefined;

/** etcd names neither its limit nor what was asked for. */
function explained({ reason, host, details, inDoubt }: EtcdRefusedError, txn: Txn): EtcdRefusedError {
  const { length } = txn.queues;
  const needs = `${length === 1 ? "one name needs" : `${length} names need`} ${operationsOf(txn)} operations`;
  const advice = `raise etcd's --max-txn-ops (default: 128)${length === 1 ? "" : ", or take fewer names at once"}`;
  return new EtcdRefusedError(reason, host, `${details}; ${needs}: ${advice}`, { inDoubt });
}

/** etcd allows 128 operations in one transaction, by its default: these, and those inside the largest of them. */
const MAX_BATCH = 96;
const MAX_SHARED = 128 - MAX_BATCH;
/** etcd takes requests of 1.5 MiB, by its default: so many of this size fit in. */
const MAX_SHARED_SIZE = (1.5 * 1024 * 1024) / MAX_BATCH / 2;
/** Enough to keep a member busy. Transactions that come meanwhile share a request, which costs etcd less than more requests. */
const MAX_REQUESTS = 4;

const PUTS: readonly AnswerKind[] = ["quota"];
const LEASED_PUTS: readonly AnswerKind[] = ["quota", "lease"];

/** The verdicts that etcd can give to transactions: only a put can need its lease. */
function answersTo(txns: readonly Txn[]): readonly AnswerKind[] {
  const needLease = txns.some(({ success }) =>
    success.some((each) => each.kind === "put" && each.leaseId !== 0n),
  );
  return needLease ? LEASED_PUTS : PUTS;
}

interface BatchSetting {
  readonly clock: Clock;
  /** False: each transaction needs a request of its own. */
  readonly sharesRequests: boolean;
  /** Learns the raft term of each answer. */
  readonly floor: { observed(header: Header): void };
}

/**
 * Group commit: transactions that are sent in one turn of the event loop, or while others are in flight, leave together, in one request,
 * one raft entry, one fsync. The first waits for the end of its turn alone. Two that touch the same queue share no request: etcd evaluates
 * all compares of a request against the state before it, so both could succeed. They may be in flight together in separate requests, which
 * etcd applies in any order: a caller that needs an order (an entry's deletion after its join) waits for the answer. A release that waited
 * for another session's join would hand over the lock later by a whole request.
 */
export class Batcher {
  /** The transactions of each name in order of arrival: only the first can leave. The names in the order of their turns. */
  #waiting = new Map<string, Set<PendingTxn>>();
  /** Fewer share a request after etcd, by a lower limit of operations, has rejected so many. */
  #most = MAX_BATCH;
  /** The requests in flight to the member in use. */
  #inFlight = { count: 0 };
  #flushTimer: Timer | undefined;
  #endsTurn = false;
  readonly #aborts = new AbortFanOut("all");

  constructor(
    private readonly pool: MemberPool,
    private readonly setting: BatchSetting,
  ) {}

  /** One attempt. Rejects with its failure, with NotSentError, or, before it is sent, with the signal's reason. */
  send(txn: Txn, limits: AttemptLimits): Promise<TxnAnswer> {
    const isLarge = operationsOf(txn) > MAX_SHARED || sizeOf(txn) > MAX_SHARED_SIZE;
    const isAlone = limits.repeated || isLarge || !this.setting.sharesRequests;
    const pending = new PendingTxn(txn, limits, isAlone);
    pending.listen(this.#aborts, () => {
      this.#remove(pending);
      pending.abandon();
    });
    this.#add(pending);
    if (this.#inFlight.count === 0) this.#flushWithTurn();
    else this.#flushSoon();
    return pending.answer;
  }

  /** Requests in flight to the last member do not delay those to the next one. */
  memberLeft(): void {
    this.#inFlight = { count: 0 };
    this.#flushSoon();
  }

  #add(pending: PendingTxn): void {
    const line = this.#waiting.get(pending.line) ?? new Set();
    this.#waiting.set(pending.line, line.add(pending));
  }

  /** Puts `batch` in front of all others, in this order. */
  #addInFront(batch: readonly PendingTxn[]): void {
    const before = this.#waiting;
    const lineOf = (pending: PendingTxn) => new Set([pending, ...(before.get(pending.line) ?? [])]);
    this.#waiting = new Map(batch.map((pending) => [pending.line, lineOf(pending)]));
    for (const [name, line] of before) if (!this.#waiting.has(name)) this.#waiting.set(name, line);
  }

  #remove(pending: PendingTxn): void {
    const line = this.#waiting.get(pending.line);
    line?.delete(pending);
    if (line?.size === 0) this.#waiting.delete(pending.line);
    if (this.#waiting.size === 0) this.#cancelFlush();
  }

  /** Removes `pending` for its request: the others of its name come after the other names. */
  #take(pending: PendingTxn): void {
    const line = this.#waiting.get(pending.line);
    this.#remove(pending);
    if (!line || line.size === 0) return;
    this.#waiting.delete(pending.line);
    this.#waiting.set(pending.line, line);
  }

  #cancelFlush(): void {
    this.#flushTimer?.cancel();
    this.#flushTimer = undefined;
  }

  /** Nothing is lost by it: the socket, too, is written to at the end of a turn. */
  #flushWithTurn(): void {
    if (this.#endsTurn) return;
    this.#endsTurn = true;
    inOwnContext(() =>
      nextTick(() => {
        this.#endsTurn = false;
        this.#flush();
      }),
    );
  }

  /** Waits for the transactions that the answers just read will cause: they leave in the same request. */
  #flushSoon(): void {
    if (this.#waiting.size > 0)
      this.#flushTimer ??= this.setting.clock.afterPendingEvents(() => this.#flush());
  }

  #flush(): void {
    this.#cancelFlush();
    while (this.#inFlight.count < MAX_REQUESTS) {
      const batch = this.#nextBatch();
      if (batch.length === 0) return;
      this.#sendBatch(batch, this.#inFlight);
    }
  }

  #nextBatch(): PendingTxn[] {
    const batch: PendingTxn[] = [];
    if (this.#waiting.size === 0) return batch;
    const taken = new ConflictSet();
    // Names that conflict with one passed over must not overtake it: no name waits forever.
    const passedOver = new ConflictSet();
    for (const [name, line] of this.#waiting) {
      if (batch.length === this.#most || batch[0]?.alone) break;
      const pending = firstWanted(line);
      if (!pending) {
        this.#waiting.delete(name);
        continue;
      }
      const { queues } = pending.txn;
      const apart = pending.alone && batch.length > 0;
      if (apart || taken.conflict(queues) || passedOver.conflict(queues)) {
        passedOver.add(queues);
      } else {
        taken.add(queues);
        batch.push(pending);
      }
    }
    for (const pending of batch) this.#take(pending);
    return batch;
  }

  #sendBatch(batch: readonly PendingTxn[], inFlight: { count: number }): void {
    const request = new BatchRequest(batch, this.setting.clock);
    inFlight.count++;
    const ended = (): void => {
      inFlight.count--;
      this.#flushSoon();
    };
    request.send(this.pool).then(
      (answers) => {
        if (answers[0]) this.setting.floor.observed(answers[0].header);
        request.succeed(answers);
        ended();
      },
      (error: unknown) => {
        const tooMany = asTooMany(error);
        // One transaction may have caused the rejection of all: each is sent again alone.
        if (batch.length > 1 && refused(error)) {
          if (tooMany) this.#most = Math.max(1, Math.min(this.#most, Math.floor(batch.length / 2)));
          this.#oneByOne(request.remaining(), inDoubt(error));
        } else request.failed(tooMany ? explained(tooMany, batch[0]!.txn) : (error as Error));
        ended();
      },
    );
  }

  #oneByOne(batch: readonly PendingTxn[], doubted: boolean): void {
    for (const pending of batch) {
      pending.alone = true;
      if (doubted) pending.limits.doubted();
    }
    this.#addInFront(batch);
  }
}

function firstWanted(line: Set<PendingTxn>): PendingTxn | undefined {
  for (const pending of line) {
    if (pending.limits.wanted()) return pending;
    line.delete(pending);
    pending.fail(new NotSentError("no caller waits for it any longer"));
  }
  return undefined;
}
