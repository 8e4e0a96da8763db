// The modes of a Mutex with `priorities`, and the order in which its calls are served.
//
//   jobs/nightly/6a1f-2   47   {"priority":{"level":0,"agingMs":30000,"granted":true}}   holds
//   jobs/nightly/7b20     44   {"since":"…:10","priority":{"level":0,"agingMs":30000}}   waits: rank …:10
//   jobs/nightly/5c93     51   {"since":"…:25","priority":{"level":1,"agingMs":30000}}   waits: rank …:25 - 30 s, so it is next
//
// A call that waits has a *place*, and one transaction, the *claim*, replaces the place by the key of the *hold*. So the create revision of
// that key is the revision of the grant, and the fences rise from hold to hold, though the places are not served in the order of theirs.
//
// - **Order.** A place's rank is the time of its call, by the clock of its process, minus `level * agingMs`, all of which its value says. The
//   lowest rank is next; of two equal ones, the older place. No rank ever changes. So a call is overtaken only by those of a higher level that
//   come at most the difference times their `agingMs` later: nobody starves. Clocks decide who is next, and never who holds.
// - **Exclusion.** A claim compares that each key which was in its way is gone, and that none was created since the queue was read: nobody
//   holds, and nobody better waits, at the revision of the grant. A lock without any key is claimed without a place.
// - **No lost wake-up.** A call waits for the end of one key, which its last read has shown: that of the next better place, or of
//   the holder if there is none. While that place is there, the call is not next. When nobody holds, the key of the next call is gone
//   therefore, since its rank was no better before; and the watch began before the last read, or nothing was written in between. A call
//   that comes between two others wakes nobody: the later one finds it when its key has ended. A claim that fails has read the queue.
// - **No endless claims.** A claim fails if any other call joins after its read. So a call that is no better than the next one, and knows the
//   lock to be free, lets that one's claim pass before it joins: once, and for a second at most, because its process may stand still.
import type { KeyValue, Range } from "../../etcd/port.js";
import { compactKey } from "../../etcd/watch.js";
import { KindMismatchError, QueueFullError } from "../../errors.js";
import { parseEntryValue, type Priority } from "../../keys.js";
import { entryFound, type FoundEntry } from "../../kinds.js";
import type { JoinedEntry } from "./entry.js";
import { exclusive, type LockMode, queueRange, UNKNOWN } from "./lock-mode.js";
import type { Queue } from "./queue.js";

/** So many calls of a name wait at most, of all processes: each reads all places when its turn may have come. */
export const MAX_PLACES = 1000;
/** Calls that join at the same time may exceed that. */
export const MOST = 2 * MAX_PLACES;

/** All keys, with their values. */
export const everyEntry = (path: string): Range => ({
  ...queueRange(path),
  order: "oldest first",
  limit: MOST,
});

/** The order of places. The lowest is next. `since`: milliseconds. */
export const rankOf = (since: number, { level, agingMs }: Priority): number => since - level * agingMs;

function modeOf(priority: Priority): LockMode {
  return {
    ...exclusive,
    priority,
    readsToJoin: ({ path }) => [everyEntry(path)],
    joined: () => UNKNOWN,
  };
}

/** One mode for each priority: a program may ask for each of them again and again. */
const modes = new Map<string, { readonly place: LockMode; readonly hold: LockMode }>();

/** The modes of a place and of a hold. */
export function prioritized(
  level: number,
  agingMs: number,
): { readonly place: LockMode; readonly hold: LockMode } {
  const key = `${level}/${agingMs}`;
  const known = modes.get(key) ?? {
    place: modeOf({ level, agingMs }),
    hold: modeOf({ level, agingMs, granted: true }),
  };
  modes.set(key, known);
  return known;
}

interface Place {
  readonly kv: KeyValue;
  readonly rank: number;
}

/** A key, without the message in which etcd has sent it. */
export interface InTheWay {
  readonly key: string | Buffer;
  readonly createRevision: bigint;
}

const keptOf = ({ key, createRevision }: KeyValue): InTheWay => ({ key: compactKey(key), createRevision });

/** A key of another kind. */
interface Foreign {
  readonly revision: bigint;
  readonly mismatch: KindMismatchError;
}

/** What a read of the queue means to one call. */
export interface Outlook {
  readonly revision: bigint;
  /** Its own place is there, if it has one. */
  readonly isThere: boolean;
  /** Nobody better waits: once these are gone, it may claim, unless somebody has come since. */
  readonly blockers: readonly InTheWay[] | undefined;
  /** The key whose end it waits for. undefined: it may claim now. */
  readonly behind: InTheWay | undefined;
  /** That key is of another kind, whose caller is rejected, and leaves, unless its client is an older one. */
  readonly foreign: Foreign | undefined;
  /** The place that is next while nobody holds. Its claim is on its way, and fails if another call joins before. */
  readonly next: NextPlace | undefined;
  readonly ahead: number;
}

/** `shownAt`: the revision of the answer that has shown it. */
export interface NextPlace extends InTheWay {
  readonly rank: number;
  readonly shownAt: bigint;
}

/** More of them are there only by misuse: then a read decides, and not a claim. */
const MAX_BLOCKERS = 8;

/**
 * What all keys of a queue mean to a call with this place and rank; without a place, anything is in its way. `isNew`: it may be one too many.
 * @throws KindMismatchError if an entry of another kind was there first. @throws QueueFullError if the answer may not show all.
 */
export function outlookOf(
  queue: Queue,
  {
    place,
    rank,
    isNew,
  }: { readonly place: JoinedEntry | undefined; readonly rank: number; readonly isNew: boolean },
  { kvs, revision }: { readonly kvs: readonly KeyValue[]; readonly revision: bigint },
): Outlook {
  const { name } = queue;
  const ours = place && { kv: { key: Buffer.from(place.key), createRevision: place.revision }, rank };
  const before: Place[] = [];
  const blockers: KeyValue[] = [];
  const holds = new Set<bigint>();
  let foreign: Foreign | undefined;
  let [isThere, isFirst, waiting] = [place === undefined, true, 0];
  let next: Place | undefined;
  for (const kv of kvs) {
    if (place?.is(kv)) {
      [isThere, isFirst] = [true, false];
      next = better({ kv, rank }, next);
      continue;
    }
    const found = foundIn(queue, kv);
    const { since = "", priority } = found && isOurKind(name, found) ? parseEntryValue(kv.value) : {};
    if (priority === undefined) {
      const mismatch = found && !isLeaving(queue, kv) ? mismatchOf(name, found, kv) : undefined;
      if (mismatch && isFirst) throw mismatch;
      if (mismatch) foreign ??= { revision: kv.createRevision, mismatch };
      blockers.push(kv);
      continue;
    }
    isFirst = false;
    if (priority.granted) {
      holds.add(kv.createRevision);
      blockers.push(kv);
      continue;
    }
    waiting++;
    const other = { kv, rank: rankOf(Date.parse(since), priority) };
    next = better(other, next);
    if (ours && isBefore(other, ours)) before.push(other);
  }
  if (kvs.length >= MOST || (isNew && waiting >= MAX_PLACES))
    throw new QueueFullError(name, MAX_PLACES, waiting);
  const last = before.reduce<Place | undefined>((a, b) => (a && isBefore(b, a) ? a : b), undefined);
  const behind = place === undefined ? kvs[0] : (last?.kv ?? blockers[0]);
  const mayClaim = last === undefined && blockers.length <= MAX_BLOCKERS;
  return {
    revision,
    isThere,
    blockers: mayClaim ? blockers.map(keptOf) : undefined,
    behind: behind && keptOf(behind),
    foreign: last === undefined ? foreign : undefined,
    next:
      next && blockers.length === 0 ? { ...keptOf(next.kv), rank: next.rank, shownAt: revision } : undefined,
    ahead: before.length + holds.size,
  };
}

const isOurKind = (name: string, found: FoundEntry): boolean =>
  found.name === name && found.kind === "priority";

/** @throws KindMismatchError if an entry that the session has taken over is of another kind. */
export function assertOurKind(queue: Queue, kv: Pick<KeyValue, "key" | "value" | "leaseId">): void {
  const found = foundIn(queue, kv);
  if (found && !isOurKind(queue.name, found)) throw mismatchOf(queue.name, found, kv);
}

const mismatchOf = (name: string, found: FoundEntry, { key }: Pick<KeyValue, "key">): KindMismatchError =>
  new KindMismatchError({ name, kind: "priority" }, found, key.toString());

const foundIn = (
  { name, lease }: Queue,
  kv: Pick<KeyValue, "key" | "value" | "leaseId">,
): FoundEntry | undefined => entryFound(name, kv, lease.services.options.prefix);

/** An entry of this session that leaves, or a late put of one, which ends by itself. */
const isLeaving = ({ lease }: Queue, kv: KeyValue): boolean =>
  (kv.leaseId === lease.leaseId || kv.leaseId === lease.delay?.leaseId) && !lease.sweeper.isForeign(kv);

interface Ranked {
  readonly kv: Pick<KeyValue, "key" | "createRevision">;
  readonly rank: number;
}

const better = (place: Place, than: Place | undefined): Place =>
  than && !isBefore(place, than) ? than : place;

function isBefore(a: Ranked, b: Ranked): boolean {
  if (a.rank !== b.rank) return a.rank < b.rank;
  if (a.kv.createRevision !== b.kv.createRevision) return a.kv.createRevision < b.kv.createRevision;
  return a.kv.key.compare(b.kv.key) < 0;
}
