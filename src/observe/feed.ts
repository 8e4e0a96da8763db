import type { EtcdServices } from "../session/connection.js";

/** What a feed yields, and where it comes from. */
export interface FeedSource<T> {
  readonly services: EtcdServices;
  readonly signal: AbortSignal | undefined;
  /** A consumer that has stopped reading must not fill the memory: of more unread items, the oldest are dropped. */
  readonly maxUnread: number;
  /** Of two items in a row that are the same, the second is not delivered. */
  same(a: T, b: T): boolean;
  /** Called by the first `next()`. */
  start(sink: FeedSink<T>): { stop(): void };
}

export interface FeedSink<T> {
  readonly item: (item: T) => void;
  readonly failed: (error: Error) => void;
}

type Result<T> = IteratorResult<T, undefined>;

interface PendingNext<T> {
  readonly resolve: (result: Result<T>) => void;
  readonly reject: (reason: unknown) => void;
}

const DONE: Result<never> = { done: true, value: undefined };

/** An iterator over what happens in etcd. Starts with the first `next()`; ends when the caller aborts or the cluster closes. */
export class Feed<T> implements AsyncIterableIterator<T> {
  #unread: T[] = [];
  /** Calls of `next()` that are still pending. */
  readonly #waiting: PendingNext<T>[] = [];
  /** The last item delivered, boxed: undefined (no leader) is an item, too. */
  #last: { readonly item: T } | undefined;
  #failure: { readonly reason: unknown } | undefined;
  #state: "new" | "open" | "over" = "new";
  #watch: { stop(): void } | undefined;
  #unlisten: () => void = () => {};

  constructor(private readonly source: FeedSource<T>) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result<T>> {
    if (this.#state === "new") this.#begin();
    if (this.#failure) {
      const { reason } = this.#failure;
      this.#failure = undefined;
      return Promise.reject(reason);
    }
    while (this.#unread.length > 0) {
      const item = this.#unread.shift() as T;
      // Dropping the oldest items may have left two of the same in a row.
      if (this.#isNews(item)) return Promise.resolve(this.#deliver(item));
    }
    if (this.#state === "over") return Promise.resolve(DONE);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Called when the consumer leaves the loop. */
  return(): Promise<Result<T>> {
    this.#end();
    for (const { resolve } of this.#waiting.splice(0)) resolve(DONE);
    return Promise.resolve(DONE);
  }

  #begin(): void {
    const { aborts, closed } = this.source.services;
    this.#state = "open";
    const signals = [this.source.signal, closed];
    const stops = signals.map((signal) => aborts.add(signal, () => this.#fail(signal?.reason)));
    this.#unlisten = () => {
      for (const stop of stops) stop();
    };
    const aborted = signals.find((signal) => signal?.aborted);
    if (aborted) return this.#fail(aborted.reason);
    this.#watch = this.source.start({
      item: (item) => this.#add(item),
      failed: (error) => this.#fail(error),
    });
  }

  #add(item: T): void {
    const last = this.#unread.length > 0 ? { item: this.#unread.at(-1) as T } : this.#last;
    if (last && this.source.same(last.item, item)) return;
    const pending = this.#waiting.shift();
    if (pending) return pending.resolve(this.#deliver(item));
    this.#unread.push(item);
    if (this.#unread.length > this.source.maxUnread) this.#unread.shift();
  }

  #isNews(item: T): boolean {
    return !this.#last || !this.source.same(this.#last.item, item);
  }

  #deliver(item: T): Result<T> {
    this.#last = { item };
    return { done: false, value: item };
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
