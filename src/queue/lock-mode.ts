import type { Compare, KeyValue, Range, RangeAnswer } from "../etcd/port.js";
import type { WatchTarget } from "../etcd/watch/hub.js";
import { compactKey, keyText } from "../etcd/watch/watch.js";
import { prefixEnd, prefixOf } from "../keys.js";
import type { Lease } from "../session/lease.js";

/** etcd's answer for one range. */
export type RangeResult = Omit<RangeAnswer, "header">;

/** What a lock mode reads of an entry before its join. */
export interface NewEntry {
  readonly name: string;
  readonly key: string;
}

/** What a lock mode reads of an entry that is in the queue. */
export interface EntryView extends NewEntry {
  readonly lease: Lease;
  /** Its key is `directory/<lease>`. */
  readonly directory: string;
  readonly value: string;
  readonly mode: LockMode;
  /** Create revision. */
  readonly revision: bigint;
  /** Create revision of the entry that its join found before it, if the answer contained one. */
  readonly joinedBehind: bigint | undefined;
  /** It is granted. */
  readonly held: boolean;
  is(kv: KeyValue): boolean;
}

/** What an entry waits for: the end of the nearest entry that it must not overtake, or of any of several entries. */
export interface Predecessor {
  readonly target: WatchTarget;
  /** Create revision, which identifies the entry. Undefined if it stands for several. */
  readonly revision: bigint | undefined;
  /** It is known that our turn comes with its end. */
  readonly holder: boolean;
  /** The entry before it, if one is known. */
  readonly before?: Predecessor | undefined;
  /** Whether this event is its end. An event of an earlier life of the same key is not. */
  endedBy(kv: KeyValue): boolean;
  /** The next predecessor after a put that announces its grant; such a put frees nothing. */
  readonly afterPut?: Predecessor | undefined;
}

/** The revision alone is not enough: one request puts several entries, and those of names below ours are all before us. */
export const isSame = (a: Predecessor | undefined, b: Predecessor): boolean =>
  a !== undefined && a.revision === b.revision && keyText(a.target.key) === keyText(b.target.key);

/** The entry waits. */
export interface Behind {
  readonly state: "waiting";
  readonly predecessor: Predecessor;
  /** How many entries must end before our turn, as far as the answer shows. */
  readonly ahead: number;
}

export type Position = "first" | "gone" | Behind;

/** The entry holds. `visible`: the entries behind it can see that from the queue. */
export interface Granted {
  readonly state: "granted";
  readonly visible: boolean;
}

/** Only a read shows whether the entry holds. */
export interface Unknown {
  readonly state: "unknown";
}

/** What the answer to a join shows of its entry. */
export type JoinResult = Granted | Behind | Unknown;

export const GRANTED: Granted = { state: "granted", visible: true };
export const GRANTED_UNSEEN: Granted = { state: "granted", visible: false };
export const UNKNOWN: Unknown = { state: "unknown" };

/** How to join only if the entry holds at once: by compares in one transaction, or by a read before the join. */
export type Trying =
  | { readonly when: (entry: NewEntry) => readonly Compare[] }
  | { readonly look: (name: string) => Range; readonly hasRoom: (oldest: RangeResult) => boolean };

/** What differs between the entries of a mutex, a reader, a writer and a permit. `Queue` does everything else. */
export interface LockMode {
  /** Keys are in `name`, `name/read` or `name/write`. */
  readonly folder: "" | "/read" | "/write";
  /** Several may hold at a time, so a hold has no fence. */
  readonly shared: boolean;
  /** How many may hold at a time, as written in the value of each entry. */
  readonly permits?: number;
  readonly trying: Trying;
  /** The key is put again when a wait ends in a grant: the entries behind it cannot see the grant otherwise. */
  readonly announcesGrant: boolean;
  /** The entry of the same session whose end or grant this one waits for, without a watch. `earlier`: oldest first. */
  follows<E extends EntryView>(entry: E, earlier: readonly E[]): E | undefined;
  /** Once the entry that it followed is granted, it is granted, too, if its key exists. Otherwise a read shows what it waits for. */
  readonly grantedTogether: boolean;
  /** Whether a new entry will certainly follow one of ours, so that its join need not read the queue. */
  surelyFollows(ours: readonly EntryView[]): boolean;
  /** The ranges that a join reads beside its put, and what the answer means. */
  readsToJoin(entry: NewEntry): readonly Range[];
  joined(entry: EntryView, results: readonly RangeResult[]): JoinResult;
  /** The ranges that a waiting entry reads, and what the answer means. "unclear": it must read `all` of the entries. */
  reads(entry: EntryView, all: boolean): readonly Range[];
  positionOf(entry: EntryView, results: readonly RangeResult[]): Position | "unclear";
  /** The ranges that the deletion of the entry followed by `entry` reads, to see whether `entry` is first now. */
  readsForFirst(entry: EntryView): readonly Range[];
  isFirst(entry: EntryView, results: readonly RangeResult[]): boolean;
}

/** Spread it last: Node.js 20 adds further fields slowly after a spread. */
export const queueRange = (name: string): { readonly key: string; readonly end: string } => {
  const prefix = prefixOf(name);
  return { key: prefix, end: prefixEnd(prefix) };
};

/** How many of the last entries a join or a read returns: enough to see whether the predecessor is the holder. */
const LAST = 4;

/** The last entries up to and including ours: show which one is just below and whether ours still exists. */
export const lastEntries = (entry: EntryView): Range => ({
  order: "newest first",
  limit: LAST,
  maxCreateRevision: entry.revision,
  ...queueRange(entry.name),
});

/** One entry, which ends when its key is deleted. Keeps nothing else of the answer that contained it. */
export class EntryBelow implements Predecessor {
  readonly before: Predecessor | undefined;
  readonly afterPut: Predecessor | undefined;
  readonly target: WatchTarget;
  readonly revision: bigint;

  constructor(
    { key, createRevision }: Pick<KeyValue, "key" | "createRevision">,
    readonly holder: boolean,
    { before, afterPut }: Pick<Predecessor, "before" | "afterPut"> = {},
  ) {
    this.before = before;
    this.afterPut = afterPut;
    this.target = { key: compactKey(key), events: afterPut ? "ALL" : "DELETE" };
    this.revision = createRevision;
  }

  endedBy({ key, modRevision }: KeyValue): boolean {
    return modRevision > this.revision && keyText(key) === keyText(this.target.key);
  }
}

/** The position of `entry`, by an answer to `lastEntries`. */
export function positionOf(entry: EntryView, { kvs, more }: Omit<RangeResult, "count">): Position {
  const [mine, below, next, ...rest] = kvs;
  if (!mine || !entry.is(mine)) return "gone";
  if (!below) return "first";
  const ahead = 1 + (next ? 1 : 0) + rest.length + (more ? 1 : 0);
  const before = next && new EntryBelow(next, ahead === 2);
  return { state: "waiting", predecessor: new EntryBelow(below, ahead === 1, { before }), ahead };
}

/** Holds alone: waits for every earlier entry, of any mode. */
const alone = (folder: LockMode["folder"]): LockMode => ({
  folder,
  shared: false,
  announcesGrant: false,
  trying: { when: ({ name }) => [{ kind: "nothing in", ...queueRange(name) }] },
  follows: (_, earlier) => earlier.at(-1),
  grantedTogether: false,
  surelyFollows: (ours) => ours.length > 0,
  readsToJoin: ({ name }) => [{ order: "newest first", limit: LAST, ...queueRange(name) }],
  joined: (entry, [last]) => {
    if (!last) return UNKNOWN;
    const position = positionOf(entry, { kvs: last.kvs, more: last.count > last.kvs.length });
    if (position === "first") return GRANTED;
    return position === "gone" ? UNKNOWN : { ...position, ahead: last.count - 1 };
  },
  reads: (entry) => [lastEntries(entry)],
  positionOf: (entry, [last]) => (last ? positionOf(entry, last) : "gone"),
  readsForFirst: ({ name }) => [{ order: "oldest first", limit: 1, ...queueRange(name) }],
  isFirst: (entry, [oldest]) => oldest?.kvs[0] !== undefined && entry.is(oldest.kvs[0]),
});

/** For a mutex or a candidate: the same keys as those of Go's client. */
export const exclusive = alone("");
export const writer = alone("/write");
