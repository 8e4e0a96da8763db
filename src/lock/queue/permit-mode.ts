// The modes of a Semaphore. An entry holds if its load, which is the permits of all entries before it and its own, is no more than the
// number that rules: that in the value of the oldest entry. Clients that disagree, as during the rollout of a new number, so all use the
// same one.
//
// - **Order.** The load of an entry is larger than that of the one before it, so an entry holds only if that one does: a heavy waiter is
//   overtaken by no lighter one, and joins never delay it.
// - **No overcount.** No entry comes before another one later. So all that hold at a time were counted when the newest of them was
//   granted, and take no more than the number that ruled then. Nothing else is promised: when a smaller number begins to rule, those that
//   hold keep what they have.
// - **No deadlock.** The oldest entry always holds, because its own number rules then, and its weight is no more than that. An entry that
//   is heavier than the number that rules waits until it is the oldest one itself.
//
// Only the first waiter watches the holders. When it is granted, it puts its key, which makes the next waiter the first one.
import type { KeyValue, Range } from "../../etcd/port.js";
import { MAX_PERMITS, parseEntryValue } from "../../keys.js";
import {
  type Behind,
  EntryBelow,
  type EntryView,
  GRANTED,
  GRANTED_UNSEEN,
  type JoinResult,
  type LockMode,
  oldestOf,
  type Position,
  type Predecessor,
  queueRange,
  type RangeResult,
  UNKNOWN,
} from "./lock-mode.js";

type Valued = Pick<KeyValue, "value">;

/** What the values of the entries say. */
interface Counting {
  /** How many permits there are. undefined: the entry is of another kind or client. */
  permitsIn(entry: Valued): number | undefined;
  weightOf(entry: Valued): number;
  /** Each entry takes one permit: their number is enough to know the load. */
  readonly isEven: boolean;
}

const EVEN: Counting = {
  permitsIn: ({ value }) => parseEntryValue(value).permits,
  weightOf: () => 1,
  isEven: true,
};

/** Beside an entry of another kind or client, which says nothing of permits, nobody holds: it takes more than there can be. */
const ALL = MAX_PERMITS + 1;

const WEIGHTED: Counting = {
  permitsIn: ({ value }) => parseEntryValue(value).weighted?.permits,
  weightOf: ({ value }) => parseEntryValue(value).weighted?.weight ?? ALL,
  isEven: false,
};

/** The number that rules while `oldest` is the oldest entry. One of another kind or client holds alone. */
const rulingNumber = (by: Counting, oldest: Valued): number => by.permitsIn(oldest) ?? 1;

const loadOf = (by: Counting, entries: readonly Valued[]): number =>
  by.isEven ? entries.length : entries.reduce((sum, entry) => sum + by.weightOf(entry), 0);

/**
 * Whether the entry, with this load or a larger one, will put its key when it is granted. An entry that already holds
 * will not. It waited after its join if its own number says so: if another number ruled then, it puts its key in any case.
 */
const willAnnounce = (by: Counting, kv: KeyValue, load: number): boolean =>
  kv.modRevision === kv.createRevision && load > (by.permitsIn(kv) ?? Infinity);

/** How many of the entries wait, at least. `shown`: the last of them, newest first. `load`: at least that of the last one. */
function waitingIn(
  by: Counting,
  shown: readonly KeyValue[],
  { load, permits }: { readonly load: number; readonly permits: number },
): number {
  let [waiting, left] = [0, load];
  for (const kv of shown) {
    if (left <= permits) return waiting;
    waiting++;
    left -= by.weightOf(kv);
  }
  return waiting + Math.max(0, left - permits);
}

/** All entries up to and including ours. */
const upTo = ({ path, revision }: EntryView): Range => ({
  ...queueRange(path),
  order: "newest first",
  maxCreateRevision: revision,
});

/** Waits for the put or the end of the entry below, which is still waiting. */
function behindWaiter(path: string, below: KeyValue): Predecessor {
  return new EntryBelow(below, false, { afterPut: behindHolders(path, undefined, false) });
}

/** Waits for the end of any holder. `holders` undefined: a read must still find the holders. */
function behindHolders(path: string, holders: readonly KeyValue[] | undefined, sure: boolean): Predecessor {
  const revisions = holders && new Map(holders.map((kv) => [kv.key.toString("latin1"), kv.createRevision]));
  return {
    target: { ...queueRange(path), events: "DELETE" },
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
function standing(by: Counting, entry: EntryView, below: readonly KeyValue[]): "first" | Behind {
  const permits = rulingNumber(by, below.at(-1) ?? entry);
  const before = loadOf(by, below);
  const load = before + by.weightOf(entry);
  const [last] = below;
  if (load <= permits || !last) return "first";
  if (willAnnounce(by, last, before)) {
    const ahead = waitingIn(by, below, { load: before, permits }) + 1;
    return { state: "waiting", predecessor: behindWaiter(entry.path, last), ahead };
  }
  // While the numbers differ, a deletion may change which one rules, and to make room for a heavy entry, more than one may have to end:
  // a read decides.
  const enough = below.every((kv) => load - by.weightOf(kv) <= permits);
  const sure = enough && [...below, entry].every((each) => rulingNumber(by, each) === permits);
  return { state: "waiting", predecessor: behindHolders(entry.path, below, sure), ahead: 1 };
}

/** The answer may not show all entries before ours, but it counts them: each takes at least one permit. */
function joined(by: Counting, entry: EntryView, [oldest, newest]: readonly RangeResult[]): JoinResult {
  const first = oldest?.kvs[0];
  if (!first) return UNKNOWN;
  const below = newest?.kvs.slice(1) ?? [];
  const hidden = oldest.count - 1 - below.length;
  const permits = rulingNumber(by, first);
  const before = loadOf(by, below) + hidden;
  if (before + by.weightOf(entry) <= permits) {
    if (hidden > 0 && !by.isEven) return UNKNOWN;
    return permits === entry.mode.permits ? GRANTED : GRANTED_UNSEEN;
  }
  const [last] = below;
  if (!last) return UNKNOWN;
  const ahead = waitingIn(by, below, { load: before, permits }) + 1;
  if (willAnnounce(by, last, before))
    return { state: "waiting", predecessor: behindWaiter(entry.path, last), ahead };
  return { state: "waiting", predecessor: behindHolders(entry.path, undefined, false), ahead: 1 };
}

/** The position of `entry`, by an answer to `reads`. */
function positionIn(by: Counting, entry: EntryView, last: RangeResult | undefined): Position | "unclear" {
  const [mine, ...below] = last?.kvs ?? [];
  if (!mine || !entry.is(mine)) return "gone";
  if (!last?.more) return standing(by, entry, below);
  const { permits = 1 } = entry.mode;
  const [next] = below;
  const load = loadOf(by, below);
  // More entries than our own number are before us. Which number rules matters only to an entry that may be next.
  if (!next || !willAnnounce(by, next, load + 1)) return "unclear";
  const ahead = waitingIn(by, below, { load, permits }) + 1;
  return { state: "waiting", predecessor: behindWaiter(entry.path, next), ahead };
}

/** With more than so many waiters before it, a waiter reads as seldom as any other: it need not know how many there are. */
const COUNTED = 64;

const isWaiting = ({ held }: EntryView): boolean => !held;

/** `weight` undefined: the values of the entries say none. */
function modeOf(permits: number, weight: number | undefined): LockMode {
  const by = weight === undefined ? EVEN : WEIGHTED;
  const counted = Math.min(permits, COUNTED);
  return {
    folder: "",
    shared: true,
    permits,
    ...(weight !== undefined && { weight }),
    announcesGrant: true,
    trying: {
      // The oldest decides, and the weights. Any of the others may be one that nobody has.
      check: (path) => ({ ...oldestOf(path), limit: by.isEven ? counted : permits + COUNTED }),
      hasRoom: ({ kvs, count }) => {
        const [oldest] = kvs;
        const load = loadOf(by, kvs) + count - kvs.length + (weight ?? 1);
        return oldest === undefined || load <= rulingNumber(by, oldest);
      },
    },
    follows: (_, earlier) => earlier.findLast(isWaiting),
    // The join need not have read the queue: only a read shows whether a permit is free.
    grantedTogether: false,
    surelyFollows: (ours) => ours.some(isWaiting),
    readsToJoin: ({ path }) => [
      oldestOf(path),
      // With weights: all entries before it beside which it may hold, if they are not too many for a join.
      { ...queueRange(path), order: "newest first", limit: by.isEven ? 2 : counted + 1 },
    ],
    joined: (entry, results) => joined(by, entry, results),
    // Ours, all that may hold, and those that wait before us as long as their number matters.
    reads: (entry, all) => [all ? upTo(entry) : { ...upTo(entry), limit: permits + COUNTED }],
    positionOf: (entry, [last]) => positionIn(by, entry, last),
    readsForFirst: () => [],
    isFirst: () => false,
  };
}

/** One mode for each number and weight: a program may create a semaphore for each call. */
const modes = new Map<string, LockMode>();

function known(permits: number, weight?: number): LockMode {
  const key = `${permits}/${weight}`;
  const mode = modes.get(key) ?? modeOf(permits, weight);
  modes.set(key, mode);
  return mode;
}

/** One of `permits` entries that hold at a time. */
export const permit = (permits: number): LockMode => known(permits);

/** Takes `weight` of `permits`, both of which are in its value. */
export const weighted = (permits: number, weight: number): LockMode => known(permits, weight);
