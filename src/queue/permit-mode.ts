import type { KeyValue, Range } from "../etcd/port.js";
import { parseEntryValue } from "../keys.js";
import {
  EntryBelow,
  GRANTED,
  GRANTED_UNSEEN,
  queueRange,
  UNKNOWN,
  type Behind,
  type EntryView,
  type JoinResult,
  type LockMode,
  type Position,
  type Predecessor,
  type RangeResult,
  type Trying,
} from "./lock-mode.js";

const oldestOf = (name: string): Range => ({ ...queueRange(name), order: "oldest first", limit: 1 });

/** All entries up to and including ours. */
const upTo = ({ name, revision }: EntryView): Range => ({
  ...queueRange(name),
  order: "newest first",
  maxCreateRevision: revision,
});

/** Entries of other modes and clients contain no number: while the oldest entry is one of them, it holds alone. */
const permitsOf = ({ value }: Pick<KeyValue, "value">): number => parseEntryValue(value).permits ?? 1;

/**
 * Whether the entry, which has `rank` entries below it, will put its key when it is granted. An entry that already holds
 * will not. It waited after its join if its own number says so: if another number ruled then, it puts its key in any case.
 */
const willAnnounce = (kv: KeyValue, rank: number): boolean =>
  kv.modRevision === kv.createRevision && rank >= (parseEntryValue(kv.value).permits ?? Infinity);

/** Waits for the put or the end of the entry below, which is still waiting. */
function behindWaiter(name: string, below: KeyValue): Predecessor {
  return new EntryBelow(below, false, { afterPut: behindHolders(name, undefined, false) });
}

/** Waits for the end of any holder. `holders` undefined: a read must still find the holders. */
function behindHolders(name: string, holders: readonly KeyValue[] | undefined, sure: boolean): Predecessor {
  const revisions = holders && new Map(holders.map((kv) => [kv.key.toString("latin1"), kv.createRevision]));
  return {
    target: { ...queueRange(name), events: "DELETE" },
    revision: undefined,
    holder: sure,
    endedBy: ({ key, modRevision }) => {
      if (!revisions) return true;
      const revision = revisions.get(key.toString("latin1"));
      return revision !== undefined && modRevision > revision;
    },
  };
}

/** `below`: all entries before it, nearest first. */
function standing(entry: EntryView, below: readonly KeyValue[]): "first" | Behind {
  const oldest = below.at(-1) ?? entry;
  const permits = permitsOf(oldest);
  const rank = below.length;
  const [last] = below;
  if (rank < permits || !last) return "first";
  const ahead = rank - permits + 1;
  if (willAnnounce(last, rank - 1))
    return { state: "waiting", predecessor: behindWaiter(entry.name, last), ahead };
  // While the numbers differ, a deletion may change which one rules, so a read decides.
  const sure = ahead === 1 && [...below, entry].every((each) => permitsOf(each) === permits);
  return { state: "waiting", predecessor: behindHolders(entry.name, below, sure), ahead: 1 };
}

function joined(entry: EntryView, [oldest, last]: readonly RangeResult[]): JoinResult {
  const first = oldest?.kvs[0];
  const below = last?.kvs[1];
  if (!first) return UNKNOWN;
  const permits = permitsOf(first);
  const rank = (oldest?.count ?? 0) - 1;
  if (rank < permits) return permits === entry.mode.permits ? GRANTED : GRANTED_UNSEEN;
  if (!below) return UNKNOWN;
  const ahead = rank - permits + 1;
  if (willAnnounce(below, rank - 1))
    return { state: "waiting", predecessor: behindWaiter(entry.name, below), ahead };
  return { state: "waiting", predecessor: behindHolders(entry.name, undefined, false), ahead: 1 };
}

/** The position of `entry`, by an answer to `reads`. */
function positionIn(entry: EntryView, last: RangeResult | undefined, permits: number): Position | "unclear" {
  const [mine, ...below] = last?.kvs ?? [];
  if (!mine || !entry.is(mine)) return "gone";
  if (!last?.more) return standing(entry, below);
  const [next] = below;
  // More entries than our own number are before us. Which number rules matters only to an entry that may be next.
  if (!next || !willAnnounce(next, below.length)) return "unclear";
  return { state: "waiting", predecessor: behindWaiter(entry.name, next), ahead: below.length + 1 - permits };
}

/** With more than so many waiters before it, a waiter reads as seldom as any other: it need not know how many there are. */
const COUNTED = 64;

const trying: Trying = {
  look: oldestOf,
  hasRoom: ({ kvs: [oldest], count }) => oldest === undefined || count < permitsOf(oldest),
};

const isWaiting = ({ held }: EntryView): boolean => !held;

/**
 * One of `permits` entries that hold at a time. An entry holds if fewer entries are before it than the number in the value
 * of the oldest one: clients that disagree, as during the rollout of a new number, all use the same number. Only the first
 * waiter watches the holders. When it is granted, it puts its key, which makes the next waiter the first one.
 */
const permitOf = (permits: number): LockMode => ({
  folder: "",
  shared: true,
  permits,
  announcesGrant: true,
  trying,
  follows: (_, earlier) => earlier.findLast(isWaiting),
  // Its join need not have read the queue: only a read shows whether a permit is free.
  grantedTogether: false,
  surelyFollows: (ours) => ours.some(isWaiting),
  readsToJoin: ({ name }) => [oldestOf(name), { ...queueRange(name), order: "newest first", limit: 2 }],
  joined,
  // Ours, all that may hold, and those that wait before us as long as their number matters.
  reads: (entry, all) => [all ? upTo(entry) : { ...upTo(entry), limit: permits + COUNTED }],
  positionOf: (entry, [last]) => positionIn(entry, last, permits),
  readsForFirst: () => [],
  isFirst: () => false,
});

/** One mode for each number: a program may create a semaphore for each call. */
const kinds = new Map<number, LockMode>();

export function permit(permits: number): LockMode {
  const mode = kinds.get(permits) ?? permitOf(permits);
  kinds.set(permits, mode);
  return mode;
}
