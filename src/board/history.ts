import type { BoardEntry } from "./board-entry.js";

/**
 * `granted`: the entry became a holder. `released`: a holder's key was deleted while other keys of its lease stayed, so the
 * lease lived: a release, or a deletion by another client. `ended`: a holder's key was deleted, and no other key of its
 * lease is on the board: a release, or the end of the lease. The keys of etcd do not tell which one.
 */
export type BoardEventKind = "granted" | "released" | "ended";

/** What the board saw of one entry. */
export interface BoardEvent {
  readonly kind: BoardEventKind;
  readonly entry: BoardEntry;
  /** Monotonic milliseconds. */
  readonly at: number;
  readonly revision: bigint;
  /**
   * So many keys of its lease were deleted at this revision; undefined for `granted`, and after an outage whose revisions
   * etcd has compacted. With `ended` and more than one, most often the lease ended: it expired, or its session was
   * closed. A client that releases several locks in one request looks the same.
   */
  readonly together: number | undefined;
}

/** Events that are kept of each name. */
const MAX_EVENTS = 8;
/** Names without entries of which the counts are kept: a lock that is taken again and again has none in between. */
const MAX_PAST = 1000;

/** What happened to the queue of a name. */
export class NameHistory {
  grants = 0;
  lastGrantAt: number | undefined;
  readonly #events: BoardEvent[] = [];

  /** The latest event last. */
  get events(): readonly BoardEvent[] {
    return this.#events;
  }

  add(event: BoardEvent): void {
    if (event.kind === "granted") {
      this.grants++;
      this.lastGrantAt = event.at;
    }
    this.#events.push(event);
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
  }
}

/** The histories of the names that have no entries now, the oldest first. */
export class PastNames {
  readonly #names = new Map<string, NameHistory>();

  keep(name: string, history: NameHistory): void {
    this.#names.delete(name);
    this.#names.set(name, history);
    const [oldest] = this.#names.keys();
    if (this.#names.size > MAX_PAST && oldest !== undefined) this.#names.delete(oldest);
  }

  get(name: string): NameHistory | undefined {
    return this.#names.get(name);
  }

  take(name: string): NameHistory {
    const history = this.#names.get(name) ?? new NameHistory();
    this.#names.delete(name);
    return history;
  }
}
