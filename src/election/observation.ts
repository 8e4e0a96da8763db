import type { EtcdServices } from "../session/connection.js";
import { sameLeader, type Leader } from "./leader.js";
import { LeaderWatch } from "./leader-watch.js";

/** A consumer that has stopped reading must not fill the memory: of more unread items, the oldest are dropped. */
const MAX_UNREAD = 1000;

type Result = IteratorResult<Leader | undefined, undefined>;

interface PendingNext {
  readonly resolve: (result: Result) => void;
  readonly reject: (reason: unknown) => void;
}

const DONE: Result = { done: true, value: undefined };

/** The iterator of `observe()`. Starts with the first `next()`. */
export class Observation implements AsyncIterableIterator<Leader | undefined> {
  #unread: (Leader | undefined)[] = [];
  /** Calls of `next()` that are still pending. */
  readonly #waiting: PendingNext[] = [];
  /** The last item delivered, boxed: undefined (no leader) is an item, too. */
  #last: { readonly leader: Leader | undefined } | undefined;
  #failure: { readonly reason: unknown } | undefined;
  #state: "new" | "open" | "over" = "new";
  #watch: LeaderWatch | undefined;
  #unlisten: () => void = () => {};

  constructor(
    private readonly services: EtcdServices,
    private readonly name: string,
    private readonly signal: AbortSignal | undefined,
  ) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result> {
    if (this.#state === "new") this.#begin();
    if (this.#failure) {
      const { reason } = this.#failure;
      this.#failure = undefined;
      return Promise.reject(reason);
    }
    while (this.#unread.length > 0) {
      const leader = this.#unread.shift();
      // Dropping the oldest items may have left two vacancies in a row.
      if (this.#isNews(leader)) return Promise.resolve(this.#deliver(leader));
    }
    if (this.#state === "over") return Promise.resolve(DONE);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Called when the consumer leaves the loop. */
  return(): Promise<Result> {
    this.#end();
    for (const { resolve } of this.#waiting.splice(0)) resolve(DONE);
    return Promise.resolve(DONE);
  }

  #begin(): void {
    const { aborts, closed } = this.services;
    this.#state = "open";
    const signals = [this.signal, closed];
    const stops = signals.map((signal) => aborts.add(signal, () => this.#fail(signal?.reason)));
    this.#unlisten = () => {
      for (const stop of stops) stop();
    };
    const aborted = signals.find((signal) => signal?.aborted);
    if (aborted) return this.#fail(aborted.reason);
    this.#watch = new LeaderWatch(this.services, this.name, {
      leads: (leader) => this.#leads(leader),
      failed: (error) => this.#fail(error),
    });
  }

  #leads(leader: Leader | undefined): void {
    const last = this.#unread.length > 0 ? { leader: this.#unread.at(-1) } : this.#last;
    if (last && sameLeader(last.leader, leader)) return;
    const pending = this.#waiting.shift();
    if (pending) return pending.resolve(this.#deliver(leader));
    this.#unread.push(leader);
    if (this.#unread.length > MAX_UNREAD) this.#unread.shift();
  }

  #isNews(leader: Leader | undefined): boolean {
    return !this.#last || !sameLeader(this.#last.leader, leader);
  }

  #deliver(leader: Leader | undefined): Result {
    this.#last = { leader };
    return { done: false, value: leader };
  }

  /** Rejects the first pending call of `next()`, or the next call; after that the iteration is done. */
  #fail(reason: unknown): void {
    if (this.#state !== "open" || this.#failure) return;
    this.#end();
    const [first, ...others] = this.#waiting.splice(0);
    if (first) first.reject(reason);
    else this.#failure = { reason };
    for (const { resolve } of others) resolve(DONE);
  }

  #end(): void {
    this.#state = "over";
    this.#failure = undefined;
    this.#unread = [];
    this.#unlisten();
    this.#watch?.stop();
  }
}
