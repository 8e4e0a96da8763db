import type { Compare, KeyValue, Range, RangeAnswer } from "../etcd/port.js";
import type { WatchTarget } from "../etcd/watch/hub.js";
import { compactKey, keyText } from "../etcd/watch/watch.js";
import { prefixEnd, prefixOf } from "../keys.js";
import type { QueueEntry } from "./entry.js";

/** What etcd told of one range. */
export type RangeResult = Omit<RangeAnswer, "header">;

/** What a place waits for the end of: the place just below it that it must not overtake, or any of several. */
export interface Predecessor {
  readonly target: WatchTarget;
  /** Create revision: which one it is. 0n where it stands for several. */
  readonly revision: bigint;
  /** It is known that our turn comes with its end. */
  readonly holder: boolean;
  /** Is this event its end? One of an earlier life of the same key is not. */
  endedBy(kv: KeyValue): boolean;
  /** Who is waited for next if a put said that its turn has come, which frees nothing. */
  readonly afterPut?: Predecessor | undefined;
}

/** Not by revision alone: one request puts several places, and those of names below ours are all before us. */
export const isSame = (a: Predecessor | undefined, b: Predecessor): boolean =>
  a?.revision === b.revision && keyText(a.target.key) === keyText(b.target.key);

export interface Behind {
  readonly predecessor: Predecessor;
  /** How many must end before our turn comes, as far as it was told. */
  readonly ahead: number;
}

export type Position = "first" | "gone" | Behind;

/**
 * What a join's answer came to; undefined = it takes a read to know. "held, unseen": those who come behind cannot see from
 * the queue that it holds.
 */
export type JoinResult = "held" | "held, unseen" | Behind | undefined;

/** How to take a place only if it holds at once: by conditions in one transaction, or by a look before the join. */
export type Trying =
  | { readonly when: (entry: QueueEntry) => readonly Compare[] }
  | { readonly look: (name: string) => Range; readonly hasRoom: (told: RangeResult) => boolean };

/** What differs between the places of a mutex, a reader, a writer and a permit. All else is the queue's. */
export interface LockMode {
  /** Its keys are in `name`, `name/read` or `name/write`. */
  readonly folder: "" | "/read" | "/write";
  /** Several may hold at a time: no fence. */
  readonly shared: boolean;
  /** So many may hold at a time, as the value of each place says. */
  readonly permits?: number;
  readonly trying: Trying;
  /** Its key is put once more when its turn comes after a wait: those behind it cannot see it otherwise. */
  readonly announcesGrant: boolean;
  /** The place of the same session whose end, or turn, this one waits for: no watch is needed. `earlier`: oldest first. */
  follows(entry: QueueEntry, earlier: readonly QueueEntry[]): QueueEntry | undefined;
  /** What it comes to that the turn of the place that it followed has come, and that it follows that one no more. */
  afterTurn(entry: QueueEntry): JoinResult;
  /** A new place will surely follow one of ours: its join need not ask who else is there. */
  surelyFollows(ours: readonly QueueEntry[]): boolean;
  /** What a join asks beside its put, and what the answer means. */
  asksToJoin(entry: QueueEntry): readonly Range[];
  joined(entry: QueueEntry, results: readonly RangeResult[]): JoinResult;
  /** What a waiting place reads, and what the answer means. "unclear": `all` of them must be read to know. */
  reads(entry: QueueEntry, all: boolean): readonly Range[];
  positionOf(entry: QueueEntry, results: readonly RangeResult[]): Position | "unclear";
  /** What the deletion of the place that `place` follows asks, to know whether `place` is first now. */
  asksForFirst(entry: QueueEntry): readonly Range[];
  isFirst(entry: QueueEntry, results: readonly RangeResult[]): boolean;
}

export const queueRange = (name: string): { readonly key: string; readonly end: string } => {
  const prefix = prefixOf(name);
  return { key: prefix, end: prefixEnd(prefix) };
};

/** How many of the last places a join or a read tells: enough to see whether the predecessor is the holder. */
const LAST = 4;

/** The last places up to and including ours: who is just below, and is ours still there? */
export const lastEntries = (entry: QueueEntry): Range => ({
  ...queueRange(entry.name),
  order: "newest first",
  limit: LAST,
  maxCreateRevision: entry.revision,
});

/** One place, which ends when its key is deleted. Nothing else of the answer that told it is kept. */
export class EntryBelow implements Predecessor {
  readonly target: WatchTarget;
  readonly revision: bigint;

  constructor(
    { key, createRevision }: Pick<KeyValue, "key" | "createRevision">,
    readonly holder: boolean,
    readonly afterPut?: Predecessor,
  ) {
    this.target = { key: compactKey(key), events: afterPut ? "ALL" : "DELETE" };
    this.revision = createRevision;
  }

  endedBy({ modRevision }: KeyValue): boolean {
    return modRevision > this.revision;
  }
}

/** Where `place` stands, by an answer to `lastPlaces`. */
export function positionOf(entry: QueueEntry, { kvs, more }: Omit<RangeResult, "count">): Position {
  const [mine, below, ...rest] = kvs;
  if (!mine || !entry.is(mine)) return "gone";
  if (!below) return "first";
  const ahead = 1 + rest.length + (more ? 1 : 0);
  return { predecessor: new EntryBelow(below, ahead === 1), ahead };
}

/** Alone: it waits for every earlier place, of whatever kind. */
const alone = (folder: LockMode["folder"]): LockMode => ({
  folder,
  shared: false,
  announcesGrant: false,
  trying: { when: ({ name }) => [{ kind: "nothing in", ...queueRange(name) }] },
  follows: (_, earlier) => earlier.at(-1),
  afterTurn: () => undefined,
  surelyFollows: (ours) => ours.length > 0,
  asksToJoin: ({ name }) => [{ ...queueRange(name), order: "newest first", limit: LAST }],
  joined: (entry, [last]) => {
    if (!last) return undefined;
    const position = positionOf(entry, { kvs: last.kvs, more: last.count > last.kvs.length });
    if (position === "first") return "held";
    return position === "gone" ? undefined : { predecessor: position.predecessor, ahead: last.count - 1 };
  },
  reads: (entry) => [lastEntries(entry)],
  positionOf: (entry, [last]) => (last ? positionOf(entry, last) : "gone"),
  asksForFirst: ({ name }) => [{ ...queueRange(name), order: "oldest first", limit: 1 }],
  isFirst: (entry, [oldest]) => oldest?.kvs[0] !== undefined && entry.is(oldest.kvs[0]),
});

/** A mutex, a candidate: keys as those of Go's client. */
export const exclusive = alone("");
export const writer = alone("/write");
