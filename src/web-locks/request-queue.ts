/** How a request enters the queue: to wait, to be refused if it would have to, or to rob who is before it. */
export type AcquireMode = "wait" | "try" | "steal";

/** What its line knows of a request. */
export interface QueuedRequest {
  /** Of its call among all calls. */
  readonly order: number;
  readonly way: AcquireMode;
  /** Resolves when its place is in the queue, or it is over. Never rejects. */
  enter(): Promise<void>;
  /** It would have to wait for a request before it that waits in the queue: so much is known without asking etcd. */
  mustWait(): void;
}

/** Half of the places that one session's queue has at a time: a steal must find room, and locks of other classes. */
const MAX_QUEUED = 50;

const lines = new WeakMap<object, Map<string, RequestQueue>>();

/**
 * The requests of one process for one name, which enter the queue in the order of their calls: the next one when that
 * before it is in the queue, or over.
 */
export class RequestQueue {
  #line: QueuedRequest[] = [];
  /** Entered, and neither granted nor over. */
  readonly #queued = new Set<QueuedRequest>();
  #entering = false;

  private constructor(
    private readonly byName: Map<string, RequestQueue>,
    private readonly name: string,
  ) {}

  /** `realm`: names of two clusters have nothing to do with each other. */
  static of(realm: object, name: string): RequestQueue {
    const byName = lines.get(realm) ?? new Map<string, RequestQueue>();
    lines.set(realm, byName);
    const line = byName.get(name) ?? new RequestQueue(byName, name);
    byName.set(name, line);
    return line;
  }

  /** One that has lost its place with its session comes before later calls. */
  add(entrant: QueuedRequest): void {
    this.#queued.delete(entrant);
    const behind = this.#line.findIndex(({ order }) => order > entrant.order);
    this.#line.splice(behind === -1 ? this.#line.length : behind, 0, entrant);
    void this.#enterNext();
  }

  /** It waits no more. */
  remove(entrant: QueuedRequest): void {
    this.#line = this.#line.filter((other) => other !== entrant);
    this.#queued.delete(entrant);
    void this.#enterNext();
  }

  async #enterNext(): Promise<void> {
    if (this.#entering) return;
    this.#entering = true;
    for (let next = this.#next(); next; next = this.#next()) {
      this.#line.splice(this.#line.indexOf(next), 1);
      this.#queued.add(next);
      await next.enter();
    }
    this.#entering = false;
    for (const entrant of this.#line) entrant.mustWait();
    // Names come and go (one a user, say): what is not needed is not kept.
    const empty = this.#line.length === 0 && this.#queued.size === 0;
    if (empty && this.byName.get(this.name) === this) this.byName.delete(this.name);
  }

  #next(): QueuedRequest | undefined {
    // Until it holds, a second steal would take it for one who waits, and it would come back behind that.
    if ([...this.#queued].some(({ way }) => way === "steal")) return undefined;
    return this.#queued.size < MAX_QUEUED ? this.#line[0] : this.#line.find(({ way }) => way === "steal");
  }
}
