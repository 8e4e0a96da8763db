import { KindMismatchError } from "../../errors.js";
import type { KeyValue, Range } from "../../etcd/port.js";
import { aboutKey, entryKey, type EntryValue, parseEntryValue, pathOf } from "../../keys.js";
import { entryFound, type FoundEntry, isCounted, isSameGroup, type LockKind, mayMeet } from "../../kinds.js";
import type { Lease } from "../session/lease.js";
import type { EntryView, LockMode, RangeResult } from "./lock-mode.js";

/** What an entry is made of. */
export interface EntryParts {
  readonly lease: Lease;
  readonly name: string;
  /** The n of `name/<lease>-n`. */
  readonly n: number;
  readonly mode: LockMode;
  /** Default: that of the mode, and of a mutex if the mode is exclusive. */
  readonly kind?: LockKind | undefined;
  /** A campaign puts its candidate's value, and an adopted entry keeps its value. */
  readonly value?: string | undefined;
  /** Why its caller wants the lock: a part of the value, unless that is given. */
  readonly reason?: string | undefined;
  /** When its caller came, if that was before. */
  readonly since?: string | undefined;
  /** Its key may stay after a release. */
  readonly sticky?: boolean | undefined;
  /** What a candidate says of itself. */
  readonly about?: About | undefined;
  /** The lease had it already. */
  readonly adopted?: boolean;
  /** Given: a newer call may take its place. */
  readonly superseding?: object | undefined;
}

/** What a candidate says of itself: stored with its owner, in a key beside the queue. */
export type About = Readonly<Record<string, unknown>>;

/** An entry that is in the queue: etcd has reported its create revision. */
export interface JoinedEntry extends QueueEntry, EntryView {
  readonly revision: bigint;
  readonly modified: bigint;
}

/** The kind of an entry whose caller does not state one. */
export function kindOf({ folder, permits, weight, priority }: LockMode): LockKind {
  if (priority !== undefined) return "priority";
  if (weight !== undefined) return "weighted";
  if (permits !== undefined) return "permit";
  if (folder === "") return "mutex";
  return folder === "/read" ? "reader" : "writer";
}

/** One key of ours in a queue, identified by key and create revision, never by the key alone. */
export class QueueEntry {
  readonly lease: Lease;
  readonly name: string;
  /** The name as its keys begin. */
  readonly path: string;
  /** The folder of the key, which is `directory/<lease>`. */
  readonly directory: string;
  readonly n: number;
  readonly mode: LockMode;
  readonly kind: LockKind;
  readonly key: string;
  /** The key that outlives this one by the delay of a session with `releaseDelayMs`. A permit has none, since the entries are counted, nor a call that only waits. */
  readonly delayKey: string | undefined;
  /** What it says of itself, in a key that is put and deleted together with its own. */
  readonly about: { readonly key: string; readonly value: string } | undefined;
  readonly adopted: boolean;
  readonly value: string;
  /** Whether the value has the form of all entries' values, with an ID. */
  readonly hasId: boolean;
  /** Its key may stay after a release. */
  readonly sticky: boolean;
  /** A newer call may take its place. */
  readonly supersedes: boolean;
  /** How many deletions were reported before it was made. */
  readonly #madeAt: number;
  /** None of so many was its own. */
  #soundAt: number;
  #revision: bigint | undefined;
  #modified: bigint | undefined;
  #unanswered = 0;
  #joinedBehind: bigint | undefined;
  #held = false;
  #downgraded = false;
  #turn = 1;
  #leaving = false;
  #inUse = false;

  constructor(parts: EntryParts) {
    const { lease, name, n, mode, value, reason, since, about, kind = kindOf(mode), superseding } = parts;
    const { sticky = false, adopted = false } = parts;
    this.lease = lease;
    this.#madeAt = this.#soundAt = lease.services.watches.deletions;
    this.name = name;
    this.path = pathOf(lease.services, name);
    this.directory = `${this.path}${mode.folder}`;
    this.n = n;
    this.mode = mode;
    this.kind = kind;
    this.key = entryKey(this.directory, lease.leaseId, n);
    const mayHold = mode.priority === undefined || mode.priority.granted === true;
    const isDelayed = lease.delay !== undefined && mode.permits === undefined && mayHold;
    this.delayKey = isDelayed ? entryKey(this.directory, lease.delay.leaseId, n) : undefined;
    const isAbout = about && JSON.stringify({ owner: lease.owner, ...about });
    this.about = isAbout === undefined ? undefined : { key: aboutKey(this.key), value: isAbout };
    this.adopted = adopted;
    this.sticky = sticky;
    this.supersedes = superseding !== undefined;
    this.value = value ?? JSON.stringify(this.#newValue(reason, since));
    this.hasId = value === undefined || parseEntryValue(value).id !== undefined;
  }

  /** Create revision; undefined until etcd has reported it. */
  get revision(): bigint | undefined {
    return this.#revision;
  }

  /** Modification revision, as far as this process knows. */
  get modified(): bigint | undefined {
    return this.#modified ?? this.#revision;
  }

  /** An attempt to put the key was sent and not answered: it may still be applied. */
  get inDoubt(): boolean {
    return this.#unanswered > 0;
  }

  /** Create revision of the entry that its join found before it, if the answer contained one. */
  get joinedBehind(): bigint | undefined {
    return this.#joinedBehind;
  }

  /** The entry holds, or has held. */
  get held(): boolean {
    return this.#held;
  }

  /** It is a writer that becomes a reader: from here on, others may read beside it. */
  get downgraded(): boolean {
    return this.#downgraded;
  }

  /** The value that shows this. Its key leaves with the release. */
  get downgradedValue(): string {
    return JSON.stringify({ ...parseEntryValue(this.value), sticky: undefined, downgraded: true });
  }

  /** How many holds it has had: of a key that stays after a release, each has a turn of its own. */
  get turn(): number {
    return this.#turn;
  }

  /** The caller has the hold, which finds out by itself when the key is gone. */
  get inUse(): boolean {
    return this.#inUse;
  }

  /** No caller needs it any longer. */
  get leaving(): boolean {
    return this.#leaving;
  }

  /**
   * A watch of this process has reported the deletion of its key, perhaps before the answer to its join, on another stream; or an
   * answer has shown the queue without it, perhaps before a lagging member tells of the end of the entry before it.
   */
  get knownGone(): boolean {
    const { watches } = this.lease.services;
    if (watches.deletions === this.#soundAt) return false;
    const isGone = watches.deletionOf(this.key, this.#madeAt) > (this.#revision ?? 0n);
    if (!isGone) this.#soundAt = watches.deletions;
    return isGone;
  }

  is(kv: KeyValue): boolean {
    return kv.createRevision === this.#revision && kv.key.toString() === this.key;
  }

  /** Whether an answer of a later revision proves that it is gone: the range covers its key, and the limit has not cut it off. */
  isMissingIn({ key, end, order, maxCreateRevision }: Range, { kvs, more }: RangeResult): boolean {
    const revision = this.#revision ?? 0n;
    if (end === undefined ? this.key !== key : this.key < key || this.key >= end) return false;
    if (maxCreateRevision !== undefined && maxCreateRevision < revision) return false;
    if (kvs.some((kv) => this.is(kv))) return false;
    const last = kvs.at(-1);
    if (!more || last === undefined) return true;
    return order === "newest first" ? last.createRevision < revision : last.createRevision > revision;
  }

  /** Whether it is the delay key of this entry, of the same create revision. */
  isDelay(kv: KeyValue): boolean {
    return (
      this.delayKey !== undefined &&
      kv.createRevision === this.#revision &&
      kv.key.toString() === this.delayKey
    );
  }

  attemptUnanswered(): void {
    this.#unanswered++;
  }

  /** An attempt to put the key was executed earlier: an unanswered one of ours, or one that an intermediary sent twice. */
  foundExecuted(): void {
    if (this.#unanswered > 0) this.#unanswered--;
    else this.lease.services.path.requestsAreRepeated = true;
  }

  /** etcd has reported its create revision. */
  confirmed(revision: bigint): JoinedEntry {
    this.#revision = revision;
    return this as JoinedEntry;
  }

  /** Its key was put again at this revision. */
  putAgain(revision: bigint): void {
    this.#modified = revision;
  }

  /** The answer to its join contained the entry of this create revision before it. */
  foundBefore(revision: bigint | undefined): void {
    this.#joinedBehind = revision;
  }

  beginsToHold(): void {
    this.#held = true;
  }

  downgrades(): void {
    this.#downgraded = true;
  }

  nextTurn(): void {
    this.#turn++;
  }

  /** Another process has had it, with any number of turns. */
  lastTurn(): void {
    this.#turn = Number.MAX_SAFE_INTEGER;
  }

  used(): void {
    this.#inUse = true;
  }

  /** No caller has it, and the key stays: what shows that it is gone concerns the queue again. */
  unused(): void {
    this.#inUse = false;
  }

  leaves(): void {
    this.#leaving = true;
  }

  /**
   * The error for its caller if an answer shows that it waits for an entry that it cannot share the queue with. Such an entry
   * does not count if the answer shows an older one of our kind: it is then that entry whose caller is rejected.
   * `grants`: the answer may grant a permit beside all entries that it shows, so each of them counts.
   */
  mismatchIn(results: readonly RangeResult[], grants: boolean): KindMismatchError | undefined {
    const before = this.#before(results);
    if (before.length === 0) return undefined;
    const every = grants && isCounted(this.kind);
    for (const kv of every ? before : before.slice(0, 1)) {
      const found = this.#foreign(kv);
      if (!found) continue;
      const isLate = !every && found.name === this.name && before.some((other) => this.#isOfOurKind(other));
      if (!isLate) return new KindMismatchError(this, found, kv.key.toString());
    }
    return undefined;
  }

  /** The entries before it that an answer shows, nearest first. */
  #before(results: readonly RangeResult[]): readonly KeyValue[] {
    const { revision } = this;
    if (revision === undefined) return [];
    const before: KeyValue[] = [];
    for (const { kvs } of results) for (const kv of kvs) if (kv.createRevision < revision) before.push(kv);
    return before.sort((a, b) => (a.createRevision > b.createRevision ? -1 : 1));
  }

  /** What the entry is, if it cannot be met. Our own entries that leave, and late puts on our lease, end by themselves. */
  #foreign(kv: KeyValue): FoundEntry | undefined {
    const found = this.#found(kv);
    if (!found || (found.name === this.name && mayMeet(this.kind, found.kind))) return undefined;
    const { leaseId, delay } = this.lease;
    if ((kv.leaseId !== leaseId && kv.leaseId !== delay?.leaseId) || this.#stays(kv)) return found;
    return this.lease.sweeper.isForeign(kv) ? found : undefined;
  }

  #found(kv: KeyValue): FoundEntry | undefined {
    return entryFound(this.name, kv, this.lease.services.options.prefix);
  }

  #stays(kv: KeyValue): boolean {
    for (const entry of this.lease.entries())
      if (entry instanceof QueueEntry && (entry.is(kv) || entry.isDelay(kv))) return !entry.leaving;
    return false;
  }

  #isOfOurKind(kv: KeyValue): boolean {
    const found = this.#found(kv);
    return found?.name === this.name && isSameGroup(this.kind, found.kind);
  }

  #newValue(reason: string | undefined, since?: string): EntryValue {
    const { clock } = this.lease.services;
    const { permits, weight, priority } = this.mode;
    return {
      owner: this.lease.owner,
      since: since ?? clock.date().toISOString(),
      id: clock.randomId().toString(36),
      ...(permits !== undefined && (weight === undefined ? { permits } : { weighted: { permits, weight } })),
      ...(priority !== undefined && { priority }),
      ...(reason !== undefined && { reason }),
      ...(this.sticky && { sticky: true }),
      ...(this.supersedes && { supersede: true }),
    };
  }
}
