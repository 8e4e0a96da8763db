import { inOwnContext } from "../async/own-context.js";

/** How a request joins the queue: to wait, to fail if it would have to wait, or to steal from the entries before it. */
export type AcquireMode = "wait" | "try" | "steal";

/** A request as its `RequestQueue` sees it. */
export interface QueuedRequest {
  /** Position of its call among all calls. */
  readonly order: number;
  readonly way: AcquireMode;
  /** Resolves when its entry is in the queue, or the request has ended. Never rejects. */
  join(): Promise<void>;
  /** Called when it would have to wait behind an earlier request that is in the queue, which is known without asking etcd. */
  mustWait(): void;
}

/** Half of the entries that one session's queue has at a time: leaves room for a steal, and for locks of other classes. */
const MAX_QUEUED = 50;

const lines = new WeakMap<object, Map<string, RequestQueue>>();

/**
 * The requests of one process for one name. They join the queue in the order of their calls: the next one joins when the
 * one before it is in the queue, or has ended.
 */
export class RequestQueue {
  #line: QueuedRequest[] = [];
  /** Requests that have joined, and are neither granted nor ended. */
  readonly #queued = new Set<QueuedRequest>();
  #joining = false;

  private constructor(
    private readonly byName: Map<string, RequestQueue>,
    private readonly name: string,
  ) {}

  /** `realm` keeps the names of different clusters apart. */
  static of(realm: object, name: string): RequestQueue {
    const byName = lines.get(realm) ?? new Map<string, RequestQueue>();
    lines.set(realm, byName);
    const line = byName.get(name) ?? new RequestQueue(byName, name);
    byName.set(name, line);
    return line;
  }

  /** A request that has lost its entry with its session comes before later calls. */
  add(request: QueuedRequest): void {
    this.#queued.delete(request);
    const behind = this.#line.findIndex(({ order }) => order > request.order);
    this.#line.splice(behind === -1 ? this.#line.length : behind, 0, request);
    // One call joins for the others.
    void inOwnContext(() => this.#joinNext());
  }

  /** The request no longer waits. */
  remove(request: QueuedRequest): void {
    this.#line = this.#line.filter((other) => other !== request);
    this.#queued.delete(request);
    void inOwnContext(() => this.#joinNext());
  }

  async #joinNext(): Promise<void> {
    if (this.#joining) return;
    this.#joining = true;
    for (let next = this.#next(); next; next = this.#next()) {
      this.#line.splice(this.#line.indexOf(next), 1);
      this.#queued.add(next);
      await next.join();
    }
    this.#joining = false;
    for (const request of this.#line) request.mustWait();
    // Names come and go (one per user, for example), so unused ones are not kept.
    const empty = this.#line.length === 0 && this.#queued.size === 0;
    if (empty && this.byName.get(this.name) === this) this.byName.delete(this.name);
  }

  #next(): QueuedRequest | undefined {
    // Until a steal holds, a second one would delete it as a waiter, and it would join again behind the second.
    if ([...this.#queued].some(({ way }) => way === "steal")) return undefined;
    return this.#queued.size < MAX_QUEUED ? this.#line[0] : this.#line.find(({ way }) => way === "steal");
  }
}
