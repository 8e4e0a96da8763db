// A session's keys under one name: their numbers, and the entries of the queue that they are.
import { KindMismatchError } from "../../errors.js";
import type { Range } from "../../etcd/port.js";
import { entryKey, parseEntryValue, pathOf } from "../../keys.js";
import { type LockKind, mayMeet } from "../../kinds.js";
import type { AdoptedEntry } from "../session/cleanup.js";
import type { Lease } from "../session/lease.js";
import { type EntryParts, type JoinedEntry, QueueEntry } from "./entry.js";
import { exclusive, type RangeResult } from "./lock-mode.js";

const NONE: readonly JoinedEntry[] = [];

/** What an answer has shown of the queue. */
interface Shown {
  readonly ranges: readonly Range[];
  readonly results: readonly RangeResult[];
  readonly revision: bigint;
  /** Of the last entry that was made before. */
  readonly made: number;
}
/** So many of the last answers are looked at again when a join is answered. */
const MAX_SHOWN = 16;

/** The numbers of the keys in one directory. */
interface Numbers {
  /** Released numbers, used before new ones. */
  readonly free: number[];
  highest: number;
  used: number;
}

/**
 * The numbers of one session's keys, by the directory of the keys, whichever queue uses them: the readers of `a` have their
 * keys in the directory of a mutex `a/read`.
 */
export class KeyNumbers {
  readonly #byDirectory = new Map<string, Numbers>();

  constructor(private readonly lease: Lease) {}

  next(directory: string): number {
    const numbers = this.#in(directory);
    const isTaken = (n: number): boolean =>
      this.lease.sweeper.isTaken(entryKey(directory, this.lease.leaseId, n));
    // A late put may create a key with a released number, and an adopted entry has brought its own number.
    const last = numbers.free.findLastIndex((n) => !isTaken(n));
    if (last >= 0) return numbers.free.splice(last, 1)[0] as number;
    do numbers.highest++;
    while (isTaken(numbers.highest));
    return numbers.highest;
  }

  take(entry: QueueEntry): void {
    if (this.lease.sweeper.take(entry)) this.#in(entry.directory).used++;
  }

  /** Frees the number, unless a late put may still create its key. */
  release(entry: QueueEntry): void {
    if (!this.lease.sweeper.release(entry)) return;
    // Until now, a late put of this key was taken for this entry's.
    if (entry.inDoubt) this.doubt(entry);
    const { directory, n } = entry;
    const numbers = this.#in(directory);
    numbers.free.push(n);
    // Names come and go (one per user, for example): keep only what is in use.
    if (--numbers.used === 0) this.#byDirectory.delete(directory);
  }

  /** The key may exist, or may still be put, without being this entry's: no other entry gets it for a while. */
  doubt(entry: QueueEntry): void {
    this.lease.sweeper.doubt(entry.key);
  }

  #in(directory: string): Numbers {
    const known = this.#byDirectory.get(directory);
    if (known) return known;
    const numbers = { free: [], highest: 0, used: 0 };
    this.#byDirectory.set(directory, numbers);
    return numbers;
  }
}

/** The entry that a caller wants to put. The defaults are those of a mutex. */
type Wanted = Partial<
  Pick<EntryParts, "mode" | "value" | "kind" | "reason" | "since" | "sticky" | "about" | "superseding">
>;

/** The entries of one session under one name, of any mode. */
export class SessionEntries {
  /** Entries that have joined and are not known to be gone, by create revision. */
  #joined: readonly JoinedEntry[] = NONE;
  /** Entries whose joins are under way, by the order in which they were made. */
  readonly #joining = new Map<QueueEntry, number>();
  /** What was shown meanwhile. To a younger entry it says nothing: a restored etcd has lower revisions. */
  #shown: Shown[] = [];
  #made = 0;

  constructor(
    private readonly lease: Lease,
    private readonly name: string,
    private readonly keyNumbers: KeyNumbers,
  ) {}

  /** Oldest first. */
  get joined(): readonly JoinedEntry[] {
    return this.#joined;
  }

  /** Those whose joins are under way. */
  get joining(): readonly QueueEntry[] {
    return [...this.#joining.keys()];
  }

  make({ mode = exclusive, ...wanted }: Wanted = {}): QueueEntry {
    const { lease, name } = this;
    const n = this.keyNumbers.next(`${pathOf(lease.services, name)}${mode.folder}`);
    const entry = new QueueEntry({ lease, name, n, mode, ...wanted });
    this.keyNumbers.take(entry);
    this.#joining.set(entry, ++this.#made);
    return entry;
  }

  /** An entry that an adopted lease already had. */
  adopt(found: AdoptedEntry, { mode = exclusive, kind, about }: Wanted = {}): JoinedEntry {
    const { lease, name } = this;
    const { n, value, revision, aboutKey } = found;
    // What it says of itself stays as it is, and leaves with it, whatever its caller says.
    const said = about ?? (aboutKey === undefined ? undefined : {});
    const parts = { lease, name, n, mode, value, kind, about: said, adopted: true };
    const entry = new QueueEntry(parts).confirmed(revision);
    if (parseEntryValue(value).sticky) entry.lastTurn();
    this.keyNumbers.take(entry);
    this.add(entry);
    return entry;
  }

  /** The entry is in the queue, or was: the answer to a later request may have come before that to its join. */
  add(entry: JoinedEntry): void {
    const made = this.#joining.get(entry) ?? Infinity;
    for (const shown of this.#shown) if (made <= shown.made) this.#lookFor(entry, shown);
    this.#joinEnded(entry);
    const i = this.#joined.findLastIndex(({ revision }) => revision < entry.revision) + 1;
    this.#joined = [...this.#joined.slice(0, i), entry, ...this.#joined.slice(i)];
  }

  /** With those whose joins are under way. */
  get count(): number {
    return this.#joined.length + this.#joining.size;
  }

  /** The entries that no release is deleting. A new entry cannot count on waiting for any other. */
  get staying(): readonly JoinedEntry[] {
    return this.#joined.filter(({ leaving }) => !leaving);
  }

  /** The entry of ours that `entry` waits for: found by revision, not by the order of calls. */
  followedBy(entry: JoinedEntry): JoinedEntry | undefined {
    return entry.mode.follows(entry, this.#joined.slice(0, this.#joined.indexOf(entry)));
  }

  /** The error for a caller that would wait for one of these entries, if that one is of another kind and stays. */
  mismatch(kind: LockKind, entries: readonly JoinedEntry[]): KindMismatchError | undefined {
    const { name } = this;
    const found = entries.find((entry) => !entry.leaving && !mayMeet(kind, entry.kind));
    return found && new KindMismatchError({ name, kind }, found, found.key);
  }

  /** An entry of ours that an answer should contain, and does not, is gone: the answer counts as the event of its deletion. */
  shownBy(ranges: readonly Range[], results: readonly RangeResult[], revision: bigint): void {
    const shown = { ranges, results, revision, made: this.#made };
    for (const entry of this.#joined) this.#lookFor(entry, shown);
    if (this.#joining.size === 0 || ranges.length === 0) return;
    this.#shown.push(shown);
    if (this.#shown.length > MAX_SHOWN) this.#shown.shift();
  }

  #lookFor(entry: JoinedEntry, { ranges, results, revision }: Shown): void {
    // A session may have thousands of readers. The key of a hold matters only if a later one may take it.
    if ((entry.inUse && !entry.sticky) || entry.leaving || entry.revision >= revision) return;
    const isMissing = ranges.some((range, n) => results[n] && entry.isMissingIn(range, results[n]));
    if (isMissing) this.lease.services.watches.shownGone(entry.key, revision);
  }

  #joinEnded(entry: QueueEntry): void {
    this.#joining.delete(entry);
    if (this.#joining.size === 0) this.#shown = [];
  }

  remove(entry: QueueEntry): void {
    entry.leaves();
    this.#joined = this.#joined.filter((other) => other !== entry);
  }

  /** See KeyNumbers. */
  release(entry: QueueEntry): void {
    this.#joinEnded(entry);
    this.keyNumbers.release(entry);
  }

  /** See KeyNumbers. */
  doubt(entry: QueueEntry): void {
    this.keyNumbers.doubt(entry);
  }

  /** The key of the entry exists with another value: from a late put, or from another process that uses the lease. */
  takenByAnother(entry: QueueEntry): void {
    this.doubt(entry);
    this.release(entry);
  }
}
