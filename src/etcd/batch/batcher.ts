import { AbortFanOut } from "../../async/abort-fan-out.js";
import type { Clock, Timer } from "../../async/clock.js";
import type { AttemptLimits } from "../retry.js";
import { BatchRequest, PendingTxn } from "./request.js";
import { ConflictSet } from "./conflicts.js";
import type { CallOptions, Txn, TxnAnswer } from "../port.js";
import { inDoubt, NotSentError, refused } from "../port-errors.js";

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

  /** One attempt. Rejects with AttemptError, with NotSentError, or, before it is sent, with the signal's reason. */
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
