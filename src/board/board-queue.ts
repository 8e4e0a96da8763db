import type { QueueKind } from "../inspect/entry.js";
import { byAge, kindOfQueue, splitQueue, type Split } from "../inspect/holders.js";
import type { BoardEntry, PlacedEntry } from "./board-entry.js";
import type { NameHistory } from "./history.js";
import { SortedList } from "./sorted-list.js";

/** The queue of a name now. The object changes with the queue; the arrays do not. */
export interface BoardQueue {
  readonly name: string;
  readonly kind: QueueKind;
  /** In the order of the queue. */
  readonly holders: readonly BoardEntry[];
  /** The next one first. Made when it is read, from all entries of the queue: see `waiterCount`. */
  readonly waiters: readonly BoardEntry[];
  readonly waiterCount: number;
  /** Entries that became holders since the board began. */
  readonly grants: number;
  /** Monotonic milliseconds of the last of them. */
  readonly lastGrantAt: number | undefined;
  /** Revision of the last change; that of the read for a queue which has not changed since. */
  readonly changedAt: bigint;
}

/** How a queue has changed at one revision. */
export interface HolderChange {
  readonly began: readonly PlacedEntry[];
  readonly ended: readonly PlacedEntry[];
}

/** The entries of one name, and who of them holds. */
export class LiveQueue implements BoardQueue {
  changedAt = 0n;
  holders: readonly PlacedEntry[] = [];
  /** Keys that belong to the name itself. Those of nested names alone make no queue of it. */
  direct = 0;
  #entries: SortedList<PlacedEntry>;
  #split: Split<PlacedEntry> | undefined;

  constructor(
    readonly name: string,
    readonly history: NameHistory,
    entries: Iterable<PlacedEntry>,
  ) {
    this.#entries = new SortedList(byAge, entries);
  }

  get kind(): QueueKind {
    return kindOfQueue(this.#entries.items);
  }

  get waiters(): readonly PlacedEntry[] {
    this.#split ??= splitQueue(this.#entries.items);
    return this.#split.waiters;
  }

  get waiterCount(): number {
    return this.#entries.items.length - this.holders.length;
  }

  get grants(): number {
    return this.history.grants;
  }

  get lastGrantAt(): number | undefined {
    return this.history.lastGrantAt;
  }

  set(entry: PlacedEntry): void {
    // A modified key, such as that of a leader who proclaims, holds on.
    entry.grantedAt = this.#entries.find(entry)?.grantedAt;
    this.#entries.set(entry);
  }

  remove(entry: PlacedEntry): void {
    this.#entries.remove(entry);
  }

  /** The name itself has no more keys. */
  clear(): void {
    this.#entries = new SortedList<PlacedEntry>(byAge);
  }

  /** All changes of a revision are made: finds the holders. */
  settle(revision: bigint): HolderChange {
    const before = this.holders;
    this.#split = undefined;
    this.changedAt = revision;
    this.holders = splitQueue(this.#front()).holders;
    return { began: without(this.holders, before), ended: without(before, this.holders) };
  }

  /** The entries that may hold. Who holds depends only on the entries before it, and these may be thousands. */
  #front(): readonly PlacedEntry[] {
    const entries = this.#entries.items;
    const first = entries.findIndex(({ place }) => place !== "reader" && place !== "below readers");
    const readers = first === -1 ? entries.length : first;
    return entries.slice(0, Math.max(readers, entries[0]?.facts.permits ?? 1));
  }
}

function without(entries: readonly PlacedEntry[], others: readonly PlacedEntry[]): readonly PlacedEntry[] {
  const idOf = ({ key, createRevision }: PlacedEntry): string => `${createRevision} ${key}`;
  const ids = new Set(others.map(idOf));
  return entries.filter((entry) => !ids.has(idOf(entry)));
}
