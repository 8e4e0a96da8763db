import type { KeyValue, Range } from "../etcd/port.js";
import { parseEntryValue } from "../keys.js";
import {
  EntryBelow,
  queueRange,
  type Behind,
  type LockMode,
  type Predecessor,
  type RangeResult,
} from "./lock-mode.js";
import type { QueueEntry } from "./entry.js";

const oldestOf = (name: string): Range => ({ ...queueRange(name), order: "oldest first", limit: 1 });

/** Places of other kinds and clients say no number: while the oldest is one of them, it holds alone. */
const permitsOf = ({ value }: Pick<KeyValue, "value">): number => parseEntryValue(value).permits ?? 1;

/**
 * Will the place, which has `rank` places below it, put its key when its turn comes? Not one that holds already. It was
 * waiting when it joined if its own number says so: where another number ruled then, it puts its key in any case.
 */
const willAnnounce = (kv: KeyValue, rank: number): boolean =>
  kv.modRevision === kv.createRevision && rank >= (parseEntryValue(kv.value).permits ?? Infinity);

/** Waits for the put or the end of the place below, which still waits itself. */
function behindWaiter(name: string, below: KeyValue): Predecessor {
  return new EntryBelow(below, false, behindHolders(name, undefined, false));
}

/** Waits for the end of any of those that hold. `holders` undefined: who they are is still to be read. */
function behindHolders(name: string, holders: readonly KeyValue[] | undefined, sure: boolean): Predecessor {
  const revisions = holders && new Map(holders.map((kv) => [kv.key.toString("latin1"), kv.createRevision]));
  return {
    target: { ...queueRange(name), events: "DELETE" },
    revision: 0n,
    holder: sure,
    endedBy: ({ key, modRevision }) => {
      if (!revisions) return true;
      const revision = revisions.get(key.toString("latin1"));
      return revision !== undefined && modRevision > revision;
    },
  };
}

/** `below`: all places before it, the nearest first. */
function standing(entry: QueueEntry, below: readonly KeyValue[]): "first" | Behind {
  const oldest = below.at(-1) ?? entry;
  const permits = permitsOf(oldest);
  const rank = below.length;
  const [last] = below;
  if (rank < permits || !last) return "first";
  const ahead = rank - permits + 1;
  if (willAnnounce(last, rank - 1)) return { predecessor: behindWaiter(entry.name, last), ahead };
  // While numbers differ, a deletion may change which of them rules: then a read decides.
  const sure = ahead === 1 && [...below, entry].every((each) => permitsOf(each) === permits);
  return { predecessor: behindHolders(entry.name, below, sure), ahead: 1 };
}

function joined(entry: QueueEntry, [oldest, last]: readonly RangeResult[]): ReturnType<LockMode["joined"]> {
  const first = oldest?.kvs[0];
  const below = last?.kvs[1];
  if (!first) return undefined;
  const permits = permitsOf(first);
  const rank = (oldest?.count ?? 0) - 1;
  if (rank < permits) return permits === entry.mode.permits ? "held" : "held, unseen";
  if (!below) return undefined;
  const ahead = rank - permits + 1;
  if (willAnnounce(below, rank - 1)) return { predecessor: behindWaiter(entry.name, below), ahead };
  return { predecessor: behindHolders(entry.name, undefined, false), ahead: 1 };
}

/**
 * One of `permits` places that hold at a time: those with fewer places before them than the number in the oldest one's
 * value, so that users who disagree, as while a new number is rolled out, all go by the same. Only the first waiter
 * watches the holders. It puts its key when its turn comes, which tells the next one that it is the first waiter now.
 */
const permitOf = (permits: number): LockMode => ({
  folder: "",
  shared: true,
  permits,
  announcesGrant: true,
  trying: {
    look: oldestOf,
    hasRoom: ({ kvs: [oldest], count }) => oldest === undefined || count < permitsOf(oldest),
  },
  follows: (_, earlier) => earlier.findLast(({ held }) => !held),
  afterTurn: ({ name }) => ({ predecessor: behindHolders(name, undefined, false), ahead: 1 }),
  surelyFollows: (ours) => ours.some(({ held }) => !held),
  asksToJoin: ({ name }) => [oldestOf(name), { ...queueRange(name), order: "newest first", limit: 2 }],
  joined,
  reads: ({ name, revision }, all) => [
    {
      ...queueRange(name),
      order: "newest first",
      maxCreateRevision: revision,
      // Ours, all that may hold, and one that shows that there are more.
      ...(!all && { limit: permits + 2 }),
    },
  ],
  positionOf: (entry, [last]) => {
    const [mine, ...below] = last?.kvs ?? [];
    if (!mine || !entry.is(mine)) return "gone";
    if (!last?.more) return standing(entry, below);
    const [next] = below;
    // More than our own number are before us. Which number rules matters only to one whose turn may be next.
    if (!next || !willAnnounce(next, below.length)) return "unclear";
    return { predecessor: behindWaiter(entry.name, next), ahead: below.length + 1 - permits };
  },
  asksForFirst: () => [],
  isFirst: () => false,
});

/** One for each number: a program may make a semaphore for each call. */
const kinds = new Map<number, LockMode>();

export function permit(permits: number): LockMode {
  const mode = kinds.get(permits) ?? permitOf(permits);
  kinds.set(permits, mode);
  return mode;
}
