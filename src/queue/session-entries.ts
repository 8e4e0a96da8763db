import type { AdoptedEntry } from "../session/adopted-entries.js";
import { exclusive } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { KeyNumbers } from "./key-numbers.js";
import { QueueEntry, type EntryParts, type JoinedEntry } from "./entry.js";
import { KindMismatchError } from "../errors.js";
import { mayMeet, type LockKind } from "../kinds.js";

const NONE: readonly JoinedEntry[] = [];

/** The entry that a caller wants to put. The defaults are those of a mutex. */
export type Wanted = Partial<Pick<EntryParts, "mode" | "value" | "kind">>;

/** The entries of one session under one name, of any mode. */
export class SessionEntries {
  /** Entries that have joined and are not known to be gone, by create revision. */
  #joined: readonly JoinedEntry[] = NONE;

  constructor(
    private readonly lease: Lease,
    private readonly name: string,
    private readonly keyNumbers: KeyNumbers,
  ) {}

  /** Oldest first. */
  get joined(): readonly JoinedEntry[] {
    return this.#joined;
  }

  make({ mode = exclusive, value, kind }: Wanted = {}): QueueEntry {
    const { lease, name } = this;
    const n = this.keyNumbers.next(`${name}${mode.folder}`);
    const entry = new QueueEntry({ lease, name, n, mode, value, kind });
    this.keyNumbers.take(entry);
    return entry;
  }

  /** An entry that an adopted lease already had. */
  adopt({ n, value, revision }: AdoptedEntry, { mode = exclusive, kind }: Wanted = {}): JoinedEntry {
    const { lease, name } = this;
    const entry = new QueueEntry({ lease, name, n, mode, value, kind }).confirmed(revision);
    this.add(entry);
    return entry;
  }

  /** The entry is in the queue. */
  add(entry: JoinedEntry): void {
    this.keyNumbers.take(entry);
    const later = this.#joined.findIndex(({ revision }) => revision > entry.revision);
    const i = later === -1 ? this.#joined.length : later;
    this.#joined = [...this.#joined.slice(0, i), entry, ...this.#joined.slice(i)];
  }

  /** The entry of ours that `entry` waits for: found by revision, not by the order of calls. */
  followedBy(entry: JoinedEntry): JoinedEntry | undefined {
    return entry.mode.follows(entry, this.#joined.slice(0, this.#joined.indexOf(entry)));
  }

  /** The error for a caller that would wait for one of these entries, if that one is of another kind and stays. */
  mismatch(kind: LockKind, entries: readonly JoinedEntry[]): KindMismatchError | undefined {
    const { name } = this;
    const found = entries.find((entry) => !entry.leaving && !mayMeet(kind, entry.kind));
    return found && new KindMismatchError({ name, kind }, found, found.completeKey);
  }

  /** No request is needed to see an entry of ours. @throws KindMismatchError */
  assertMeets(kind: LockKind): void {
    const mismatch = this.mismatch(kind, this.#joined);
    if (mismatch) throw mismatch;
  }

  remove(entry: QueueEntry): void {
    this.#joined = this.#joined.filter((other) => other !== entry);
  }

  /** See KeyNumbers. */
  release(entry: QueueEntry): void {
    this.keyNumbers.release(entry);
  }

  /** See KeyNumbers. */
  doubt(entry: QueueEntry): void {
    this.keyNumbers.doubt(entry);
  }

  /** Its key exists with another value: from a late put, or from another process that uses the lease. */
  takenByAnother(entry: QueueEntry): void {
    this.doubt(entry);
    this.release(entry);
  }
}
