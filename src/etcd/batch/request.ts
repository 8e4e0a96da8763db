import type { Clock, Timer } from "../../async/clock.js";
import type { AttemptLimits } from "../retry.js";
import type { CallOptions, Txn, TxnAnswer } from "../port.js";
import { AttemptError, CancelledError, UnansweredError } from "../port-errors.js";

/** A transaction between its call and its answer. It ends once. */
export class PendingTxn {
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
export class BatchRequest {
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
  givenUp(): AttemptError {
    return new AttemptError(this.#host, new CancelledError("the caller gave up", { inDoubt: this.#sent }));
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
    pending.fail(new AttemptError(this.#host, new UnansweredError(why, { inDoubt: this.#sent })));
  }
}
