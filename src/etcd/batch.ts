// Group commit: transactions that are sent while other requests are in flight leave together, in one request.
// - A transaction that finds nothing in flight leaves at once. None waits forever: names take turns, and a name that was
//   passed over is not overtaken by those that conflict with it.
// - If etcd rejects a shared request, each of its transactions is sent again alone. If a shared request stays unanswered,
//   each of its transactions is in doubt.
import { AbortFanOut } from "../util/abort.js";
import type { Clock, Timer } from "../util/clock.js";
import {
  type CallOptions,
  gaveUp,
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
  /** Transactions of one line conflict with one another. */
  readonly line: string;
  /** It must not share a request. */
  alone: boolean;
  onEnd: () => void = () => {};
  #request: BatchRequest | undefined;
  #ended = false;

  constructor(
    readonly txn: Txn,
    readonly limits: AttemptLimits,
    private readonly caller: {
      readonly resolve: (answer: TxnAnswer) => void;
      readonly reject: (reason: unknown) => void;
    },
  ) {
    this.line = txn.queues.join("\n");
    this.alone = limits.repeated;
  }

  get ended(): boolean {
    return this.#ended;
  }

  joinBatch(request: BatchRequest | undefined): void {
    this.#request = request;
  }

  succeed(answer: TxnAnswer): void {
    this.#end(() => this.caller.resolve(answer));
  }

  fail(error: unknown): void {
    this.#end(() => this.caller.reject(error));
  }

  /** Its caller has stopped waiting. A request in flight may still be executed. */
  abandon(): void {
    const { signal } = this.limits;
    this.fail(this.#request?.givenUp() ?? signal?.reason);
  }

  #end(settle: () => void): void {
    if (this.#ended) return;
    this.#ended = true;
    this.onEnd();
    settle();
    this.#request?.abandon();
  }
}

/** One request with several transactions. A caller that gives up does not affect the others; the last one cancels it. */
class BatchRequest {
  #cancel: AbortController | undefined;
  readonly #timers: Timer[] = [];
  /** How many transactions still wait for its answer. */
  #waiting: number;
  #ended = false;
  #host = "";
  #sent = false;

  constructor(private readonly batch: readonly PendingTxn[]) {
    this.#waiting = batch.length;
  }

  get txns(): readonly Txn[] {
    return this.batch.map(({ txn }) => txn);
  }

  /** The request gets the longest time limit; transactions with a shorter one have their own timers. */
  start(host: string, clock: Clock): CallOptions {
    this.#host = host;
    const limits = this.batch.map((pending) => pending.limits.timeoutMs());
    const timeoutMs = Math.max(...limits);
    for (const [n, pending] of this.batch.entries()) {
      const limitMs = limits[n]!;
      pending.joinBatch(this);
      if (limitMs < timeoutMs) this.#timers.push(clock.after(limitMs, () => this.#tooLate(pending, limitMs)));
    }
    return { timeoutMs, signal: this.#signal(), onSent: () => void (this.#sent = true) };
  }

  /** The error of a transaction whose caller gave up. */
  givenUp(): UnansweredError {
    return gaveUp(this.#sent, this.#host);
  }

  succeed(answers: readonly TxnAnswer[]): void {
    this.#ended = true;
    this.batch.forEach((pending, i) => {
      const answer = answers[i];
      if (answer === undefined) return;
      pending.limits.answered?.(this.#host);
      pending.succeed(answer);
    });
  }

  failed(error: Error): void {
    this.#ended = true;
    for (const pending of this.remaining()) pending.fail(error);
  }

  /** The transactions that still wait for an answer. */
  remaining(): PendingTxn[] {
    return this.batch.filter((pending) => !pending.ended);
  }

  abandon(): void {
    if (--this.#waiting === 0 && !this.#ended) this.#cancel?.abort();
  }

  finish(): void {
    for (const timer of this.#timers) timer.cancel();
    for (const pending of this.batch) pending.joinBatch(undefined);
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
    pending.fail(new UnansweredError(why, { inDoubt: this.#sent, host: this.#host }));
  }
}

/** etcd allows 128 operations in one transaction: these, and those inside the largest of them. */
const MAX_BATCH = 96;
/** Enough to keep a member busy. Transactions that come meanwhile share a request, which costs etcd less than more requests. */
const MAX_REQUESTS = 4;

/** Sends transactions to the member in use, as one request. */
export interface BatchTransport {
  /** False: each transaction needs a request of its own. */
  readonly sharesRequests: boolean;
  host(): string;
  /** All of them are applied, or none. */
  send(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]>;
}

/**
 * Group commit: transactions that are sent while others are in flight leave together, in one request, one raft entry, one
 * fsync. The first never waits. Two that touch the same queue share no request: etcd evaluates all compares of a request
 * against the state before it, so both could succeed. They may be in flight together in separate requests, which etcd
 * applies in any order: a caller that needs an order (an entry's deletion after its join) waits for the answer. A release
 * that waited for another session's join would hand over the lock later by a whole request.
 */
export class Batcher {
  /** The transactions of each name in order of arrival: only the first can leave. The names in the order of their turns. */
  #waiting = new Map<string, Set<PendingTxn>>();
  /** The requests in flight to the member in use. */
  #inFlight = { count: 0 };
  #flushTimer: Timer | undefined;
  readonly #aborts = new AbortFanOut("all");

  constructor(
    private readonly transport: BatchTransport,
    private readonly clock: Clock,
  ) {}

  /** One attempt. Rejects with its failure, with NotSentError, or, before it is sent, with the signal's reason. */
  send(txn: Txn, limits: AttemptLimits): Promise<TxnAnswer> {
    return new Promise((resolve, reject) => {
      const pending = new PendingTxn(txn, limits, { resolve, reject });
      if (!this.transport.sharesRequests) pending.alone = true;
      pending.onEnd = this.#aborts.add(limits.signal, () => {
        this.#remove(pending);
        pending.abandon();
      });
      this.#add(pending);
      if (this.#inFlight.count === 0) this.#flush();
      else this.#flushSoon();
    });
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

  /** Waits for the transactions that the answers just read will cause: they leave in the same request. */
  #flushSoon(): void {
    if (this.#waiting.size > 0) this.#flushTimer ??= this.clock.afterPendingEvents(() => this.#flush());
  }

  #flush(): void {
    this.#cancelFlush();
    while (this.#inFlight.count < MAX_REQUESTS) {
      const batch = this.#nextBatch();
      if (batch.length === 0) return;
      void this.#sendBatch(batch, this.#inFlight);
    }
  }

  #nextBatch(): PendingTxn[] {
    const batch: PendingTxn[] = [];
    if (this.#waiting.size === 0) return batch;
    const taken = new ConflictSet();
    // Names that conflict with one passed over must not overtake it: no name waits forever.
    const passedOver = new ConflictSet();
    for (const [name, line] of this.#waiting) {
      if (batch.length === MAX_BATCH || batch[0]?.alone) break;
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

  async #sendBatch(batch: readonly PendingTxn[], inFlight: { count: number }): Promise<void> {
    const request = new BatchRequest(batch);
    inFlight.count++;
    try {
      const options = request.start(this.transport.host(), this.clock);
      request.succeed(await this.transport.send(request.txns, options));
    } catch (error) {
      // One transaction may have caused the rejection of all: each is sent again alone.
      if (batch.length > 1 && refused(error)) this.#oneByOne(request.remaining(), inDoubt(error));
      else request.failed(error as Error);
    } finally {
      request.finish();
      inFlight.count--;
      this.#flushSoon();
    }
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
