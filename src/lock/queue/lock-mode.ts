import type { Compare, KeyValue, Range, RangeAnswer } from "../../etcd/port.js";
import type { WatchTarget } from "../../etcd/watch-hub.js";
import { compactKey, keyText } from "../../etcd/watch.js";
import { delayedBy, parseEntryValue, prefixEnd, prefixOf, type Priority, sessionRange } from "../../keys.js";
import type { Lease } from "../session/lease.js";

/** etcd's answer for one range. */
export type RangeResult = Omit<RangeAnswer, "header">;

/** What a lock mode reads of an entry before its join. */
interface NewEntry {
  readonly path: string;
  readonly key: string;
  /** The second key of the entry, if it has one: other clients wait for it as for any entry. It has the same create revision. */
  readonly delayKey: string | undefined;
}

/** What a lock mode reads of an entry that is in the queue. */
export interface EntryView extends NewEntry {
  readonly lease: Lease;
  /** The folder of the key, which is `directory/<lease>`. */
  readonly directory: string;
  readonly value: string;
  readonly mode: LockMode;
  /** Create revision. */
  readonly revision: bigint;
  /** Create revision of the entry that its join found before it, if the answer contained one. */
  readonly joinedBehind: bigint | undefined;
  /** Whether the entry holds. */
  readonly held: boolean;
  /** It is a writer that becomes a reader: from here on, others may read beside it. */
  readonly downgraded: boolean;
  is(kv: KeyValue): boolean;
  isDelay(kv: KeyValue): boolean;
}

/** An entry does not wait for its own delay key; etcd gives keys of one create revision in any order. */
const withoutOwnDelay = (entry: EntryView, kvs: readonly KeyValue[]): readonly KeyValue[] =>
  entry.delayKey === undefined ? kvs : kvs.filter((kv) => !entry.isDelay(kv));

/** How many keys a range must return to show `limit` without the entry's own delay key. */
const beside = ({ delayKey }: NewEntry, limit: number): number =>
  delayKey === undefined ? limit : limit + 1;

/** What an entry waits for: the end of the nearest entry that it must not overtake, or of any of several entries. */
export interface Predecessor {
  readonly target: WatchTarget;
  /** Create revision, which identifies the entry. Undefined if it stands for several. */
  readonly revision: bigint | undefined;
  /** Whether our turn is known to come with the end of this one. */
  readonly holder: boolean;
  /** Nobody may have it, and its session gives it back when it hears of us. */
  readonly mayBeKept?: boolean;
  /** It is a writer, which may become a reader: a put of its key shows that, and a read then shows whether we hold beside it. */
  readonly mayDowngrade?: boolean;
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

/** The compares that hold only if a new entry holds at once. */
export type When = (entry: NewEntry) => readonly Compare[];

/** How to join only if the entry holds at once: by compares in one transaction, or by a read before the join. */
type Trying =
  | {
      readonly when: When;
      /** For a mode that shares the name with entries that `when` excludes, if the oldest of a queue are such ones. */
      readonly whenBeside?: (path: string, oldest: readonly KeyValue[]) => When | undefined;
    }
  | { readonly check: (path: string) => Range; readonly hasRoom: (oldest: RangeResult) => boolean };

/** What differs between the entries of a mutex, a reader, a writer and a permit. `Queue` does everything else. */
export interface LockMode {
  /** Keys are in `path`, `path/read` or `path/write`. */
  readonly folder: "" | "/read" | "/write";
  /** Several may hold at a time, so a hold has no fence. */
  readonly shared: boolean;
  /** How many permits there are, as written in the value of each entry. */
  readonly permits?: number;
  /** How many of them the entry takes, if its value says so, too. Otherwise each takes one. */
  readonly weight?: number;
  /** The order is not that of the keys: see `priority.ts`. */
  readonly priority?: Priority;
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
export const queueRange = (path: string): { readonly key: string; readonly end: string } => {
  const prefix = prefixOf(path);
  return { key: prefix, end: prefixEnd(prefix) };
};

/** How many of the last entries a join or a read returns: enough to see whether the predecessor is the holder. */
const LAST = 4;

/** The last entries up to and including ours: show which one is just below and whether ours still exists. */
export const lastEntries = (entry: EntryView): Range => ({
  order: "newest first",
  limit: beside(entry, LAST),
  maxCreateRevision: entry.revision,
  ...queueRange(entry.path),
});

/** One entry, which ends when its key is deleted. Keeps nothing else of the answer that contained it. */
export class EntryBelow implements Predecessor {
  readonly before: Predecessor | undefined;
  readonly afterPut: Predecessor | undefined;
  readonly target: WatchTarget;
  readonly revision: bigint;
  readonly mayBeKept: boolean;
  readonly mayDowngrade: boolean;

  constructor(
    {
      key,
      createRevision,
      value = "",
    }: Pick<KeyValue, "key" | "createRevision"> & Partial<Pick<KeyValue, "value">>,
    readonly holder: boolean,
    {
      before,
      afterPut,
      mayDowngrade = false,
    }: Pick<Predecessor, "before" | "afterPut" | "mayDowngrade"> = {},
  ) {
    this.before = before;
    this.afterPut = afterPut;
    this.mayDowngrade = mayDowngrade;
    this.target = { key: compactKey(key), events: afterPut ? "ALL" : "DELETE" };
    this.revision = createRevision;
    this.mayBeKept = holder && parseEntryValue(value).sticky === true;
  }

  endedBy({ key, modRevision }: KeyValue): boolean {
    return modRevision > this.revision && keyText(key) === keyText(this.target.key);
  }
}

/** The position of `entry`, by an answer to `lastEntries`. */
export function positionOf(entry: EntryView, { kvs, more }: Omit<RangeResult, "count">): Position {
  const others = withoutOwnDelay(entry, kvs);
  const [mine, below, next, ...rest] = others;
  if (!mine || !entry.is(mine)) return "gone";
  if (!below) return "first";
  const keys = 1 + (next ? 1 : 0) + rest.length + (more ? 1 : 0);
  const before = next && new EntryBelow(next, keys === 2);
  const ahead = keys - delayKeysIn(others);
  return { state: "waiting", predecessor: new EntryBelow(below, keys === 1, { before }), ahead };
}

/** How many of them are delay keys beside their entries. Both are waited for, and count as one. */
const delayKeysIn = (kvs: readonly KeyValue[]): number =>
  kvs.filter((kv, n) => {
    const last = kvs[n - 1];
    return kv.createRevision === last?.createRevision && isPair(kv.key.toString(), last.key.toString());
  }).length;

const isPair = (a: string, b: string): boolean => delayedBy(a) === b || delayedBy(b) === a;

export const whenEmpty: When = ({ path }) => [{ kind: "nothing in", ...queueRange(path) }];

/** Holds alone: waits for every earlier entry, of any mode. */
const alone = (folder: LockMode["folder"]): LockMode => ({
  folder,
  shared: false,
  announcesGrant: false,
  trying: { when: whenEmpty },
  follows: (_, earlier) => earlier.at(-1),
  grantedTogether: false,
  surelyFollows: (ours) => ours.length > 0,
  readsToJoin: (entry) => [{ order: "newest first", limit: beside(entry, LAST), ...queueRange(entry.path) }],
  joined: (entry, [last]) => {
    if (!last) return UNKNOWN;
    const position = positionOf(entry, { kvs: last.kvs, more: last.count > last.kvs.length });
    if (position === "first") return GRANTED;
    if (position === "gone") return UNKNOWN;
    const delayKeys = delayKeysIn(withoutOwnDelay(entry, last.kvs));
    return { ...position, ahead: last.count - beside(entry, 1) - delayKeys };
  },
  reads: (entry) => [lastEntries(entry)],
  positionOf: (entry, [last]) => (last ? positionOf(entry, last) : "gone"),
  readsForFirst: (entry) => [{ order: "oldest first", limit: beside(entry, 1), ...queueRange(entry.path) }],
  isFirst: (entry, [oldest]) => {
    const [first] = withoutOwnDelay(entry, oldest?.kvs ?? []);
    return first !== undefined && entry.is(first);
  },
});

/** For a mutex or a candidate: the same keys as those of Go's client. */
export const exclusive = alone("");
export const writer = alone("/write");

/** All entries of the queue but the readers': the keys before the readers' folder, and the keys behind it. */
export function otherRanges(path: string): readonly { readonly key: string; readonly end: string }[] {
  const { key, end } = queueRange(path);
  const readers = prefixOf(`${path}/read`);
  return [
    { key, end: readers },
    { key: prefixEnd(readers), end },
  ];
}

const nearest = (entry: NewEntry): readonly Range[] =>
  otherRanges(entry.path).map((range) => ({ ...range, order: "newest first", limit: 1 }));

/** Whether a key is in the folder of the writers, and in no folder of that one. */
function isWriters(path: string, key: string): boolean {
  const folder = prefixOf(`${path}${writer.folder}`);
  return key.startsWith(folder) && !key.includes("/", folder.length);
}

/** Whether the entry is a writer that has become a reader. It held, so everything that was before it is gone. */
const isDowngraded = (path: string, { key, value }: Pick<KeyValue, "key" | "value">): boolean =>
  isWriters(path, key.toString()) && parseEntryValue(value).downgraded === true;

/** The later of the two entries, if there is any that excludes a reader. `others` is the number of all of them. */
function behind(path: string, results: readonly RangeResult[], others: number): Behind | undefined {
  const last = results.map(({ kvs }) => kvs[0]).filter((kv): kv is KeyValue => kv !== undefined);
  const [first, ...rest] = last;
  if (!first) return undefined;
  const below = rest.reduce((a, b) => (a.createRevision > b.createRevision ? a : b), first);
  if (isDowngraded(path, below)) return undefined;
  const mayDowngrade = isWriters(path, below.key.toString());
  const predecessor = new EntryBelow(below, others === 1, { mayDowngrade });
  return { state: "waiting", predecessor, ahead: others };
}

/** Readers behind it wait for it. */
const excludesReaders = ({ mode, downgraded }: EntryView): boolean => mode !== reader && !downgraded;

/**
 * If the oldest entries of a queue are a writer that has become a reader, and its delay key: a new reader holds beside it while it is
 * as it was, and nobody but readers is behind it.
 */
export function whenBeside(path: string, oldest: readonly KeyValue[]): When | undefined {
  const [first] = oldest;
  if (!first || !isDowngraded(path, first)) return undefined;
  const both = oldest.filter((kv) => kv === first || isPair(kv.key.toString(), first.key.toString()));
  const keys = both.map(({ key }) => key.toString()).sort();
  const ranges = otherRanges(path).flatMap(({ key, end }) => {
    const inside = keys.filter((each) => each >= key && each < end);
    const starts = [key, ...inside.map((each) => `${each}\0`)];
    return starts.map((start, n) => ({ key: start, end: inside[n] ?? end }));
  });
  return (entry) => [
    ...isNew(entry),
    ...both.map((kv) => ({ kind: "modified at", key: kv.key.toString(), revision: kv.modRevision }) as const),
    ...ranges.map((range) => ({ kind: "nothing in", ...range }) as const),
  ];
}

/** None of the ranges contains its own key: an attempt whose answer was lost may have put it. */
const isNew: When = ({ key, delayKey }) => [
  { kind: "created at", key, revision: 0n },
  ...(delayKey === undefined ? [] : [{ kind: "created at", key: delayKey, revision: 0n } as const]),
];

/**
 * Shares the name with other readers, and waits for the nearest earlier entry that is not a reader. That includes a writer
 * that is still waiting, so that a flow of readers cannot starve it, and not a writer that has become a reader.
 */
export const reader: LockMode = {
  folder: "/read",
  shared: true,
  announcesGrant: false,
  trying: {
    when: (entry) => [
      ...isNew(entry),
      ...otherRanges(entry.path).map((range) => ({ kind: "nothing in", ...range }) as const),
    ],
    whenBeside,
  },
  // Two readers whose joins found the same entry before them have no other entry between them: they are granted together.
  follows: (entry, earlier) =>
    earlier.findLast(excludesReaders) ??
    earlier.find(
      (other) => !other.held && other.joinedBehind === entry.joinedBehind && entry.joinedBehind !== undefined,
    ),
  // The entry followed another reader: a reader waits for the end of any other entry that it follows.
  grantedTogether: true,
  surelyFollows: () => false,
  readsToJoin: nearest,
  joined: ({ path }, results) =>
    behind(
      path,
      results,
      results.reduce((sum, { count }) => sum + count, 0),
    ) ?? GRANTED,
  reads: (entry) => [
    { key: entry.key },
    ...nearest(entry).map((range) => ({ ...range, maxCreateRevision: entry.revision - 1n })),
  ],
  positionOf: (entry, [own, ...others]) => {
    const mine = own?.kvs[0];
    if (!mine || !entry.is(mine)) return "gone";
    const seen = others.reduce((sum, { kvs, more }) => sum + kvs.length + (more ? 1 : 0), 0);
    return behind(entry.path, others, seen) ?? "first";
  },
  // Reads our own readers, too: an entry that holds by this answer must be in it.
  readsForFirst: ({ path, directory, lease }) => [
    sessionRange(directory, lease.leaseId),
    ...otherRanges(path).map((range) => ({ ...range, order: "oldest first", limit: 1 }) as const),
  ],
  isFirst: (entry, [ours, ...others]) =>
    (ours?.kvs.some((kv) => entry.is(kv)) ?? false) &&
    others.every(({ kvs: [oldest] }) => oldest === undefined || oldest.createRevision > entry.revision),
};

export const oldestOf = (path: string, limit = 1): Range => ({
  ...queueRange(path),
  order: "oldest first",
  limit,
});
