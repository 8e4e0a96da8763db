import { keyOfPlace } from "./etcd.js";
import { hold } from "./holding.js";
import { siblings } from "./joining.js";
import { endDelay, gone } from "./leaving.js";
import { readAgain } from "./reading.js";
import {
  breaks,
  isReaders,
  watchOn,
  keeps,
  looksAtOwnKey,
  neededWatches,
  placeOf,
  tell,
  watches,
  type Caller,
  type Known,
  type Position,
  type Predecessor,
  type Turn,
  type World,
} from "./world.js";

/**
 * Waits for the turn: behind a place of the caller's own session, or otherwise behind its direct predecessor. `lockAll()` watches
 * any predecessor.
 */
export function wait(world: World, caller: Caller, predecessor: Predecessor | undefined): void {
  const below = caller.setup.all ? undefined : localPredecessor(world, caller);
  if (below) {
    caller.state = { at: "local", below: below.id };
    // A key that nobody has leaves.
    if (below.state.at === "kept")
      below.state = { ...below.state, demand: { ...below.state.demand, wanted: true } };
    tell(world, `${caller.label} waits for the end of ${below.label}'s place`);
    return;
  }
  const turn: Turn = {
    at: "waiting",
    predecessor: undefined,
    predecessorWatch: undefined,
    ownWatch: undefined,
    beforeWatch: undefined,
    verified: false,
    deleted: false,
    atLeast: placeOf(caller).revision,
    holdsSince: 0,
    seenAt: placeOf(caller).revision,
    read: undefined,
  };
  if (!predecessor || caller.setup.foreign || !keeps(world, "watch-before-read"))
    return look(world, caller, turn);
  const following = follow(world, caller, turn, predecessor);
  // A read that goes with the watches most often shows its end, or verifies them.
  if (predecessor.mayBeKept) look(world, caller, following);
}

/**
 * The session's last place before this one: by revision, as etcd orders them, or, without that rule, by the order of
 * calls.
 */
function localPredecessor(world: World, caller: Caller): Caller | undefined {
  const byCall = !keeps(world, "local-order-is-etcds");
  const order = (other: Caller): number => (byCall ? other.id : (other.place?.revision ?? 0));
  // A reader of its session that waits for the same is not followed here: each reads for itself.
  const follows = ({ place }: Caller): boolean =>
    !caller.setup.reads || !place || !(isReaders(place.key) || place.downgraded);
  return siblings(world, caller)
    .filter(follows)
    .filter((other) => (byCall ? other.place : order(other) > 0) && order(other) < order(caller))
    .sort((a, b) => order(b) - order(a))[0];
}

/** Its end, or its end after that of the place before it, gives the lock. */
const mayDecide = ({ holder, before }: Predecessor): boolean => holder || before?.holder === true;

/**
 * Far from the turn, watches the place before the predecessor; near it, the predecessor and the caller's own key. The read is sent
 * when the watches exist.
 */
export function follow(
  world: World,
  caller: Caller,
  turn: Turn,
  predecessor: Predecessor,
  decides = false,
): Turn {
  return followAs(world, caller, turn, { predecessor, decides: decides || mayDecide(predecessor) });
}

interface Following {
  readonly predecessor: Predecessor;
  readonly decides: boolean;
}

function followAs(world: World, caller: Caller, turn: Turn, { predecessor, decides }: Following): Turn {
  const { key } = placeOf(caller);
  const ruled = keeps(world, "own-key-is-watched") && looksAtOwnKey(world, caller);
  const both = decides && ruled && keeps(world, "own-end-in-one-watch");
  const far = !decides && predecessor.before !== undefined;
  const next: Turn = {
    ...turn,
    predecessor,
    predecessorWatch: far ? undefined : watchOn(predecessor.key, both ? key : undefined),
    ownWatch: turn.ownWatch ?? (ruled && !both && !far ? watchOn(key) : undefined),
    beforeWatch: watchBefore(world, turn, predecessor.before),
    ...(predecessor.mayDowngrade &&
      keeps(world, "downgrades-are-watched") && { putsWatch: watchOn(predecessor.key) }),
    verified: false,
    deleted: false,
    holdsSince: 0,
    read: undefined,
  };
  caller.state = next;
  const watched = neededWatches(next).map((watch) =>
    watch.with ? `${watch.key} with its own key` : watch.key,
  );
  tell(world, `${caller.label} asks for a watch on ${watched.join(", and one on ")}`);
  return next;
}

/** Reads the current predecessor. An answer older than what is already known will not count. */
function look(world: World, caller: Caller, turn: Turn): void {
  const atLeast = Math.max(turn.atLeast, ...neededWatches(turn).map(({ createdAt }) => createdAt));
  caller.state = { ...turn, read: { linearizable: false, atLeast, answer: undefined } };
  tell(world, `${caller.label} reads who is before it`);
}

/** The last answer is not older than the watches: they report whatever has happened since. */
const sees = (turn: Turn): boolean => neededWatches(turn).every(({ createdAt }) => turn.seenAt >= createdAt);

/** etcd has created a watch of a waiter. A read under way may verify it. */
export function watching(world: World, caller: Caller, turn: Turn): void {
  caller.state = turn;
  if (!watches(turn) || turn.read) return;
  const seen = !turn.deleted && turn.seenAt > placeOf(caller).revision && sees(turn);
  if (seen) verify(world, caller, turn);
  else if (keeps(world, "watch-before-read")) look(world, caller, turn);
  else caller.state = { ...turn, verified: true };
}

export function turnRead(world: World, caller: Caller, turn: Turn, answer: Position): void {
  tell(world, `${caller.label} gets the answer of revision ${answer.revision}`);
  const next = readAgain(world, turn.read!, answer);
  if (next) caller.state = { ...turn, read: next };
  else decide(world, caller, { ...turn, read: undefined }, answer);
}

function decide(world: World, caller: Caller, turn: Turn, { mine, predecessor, revision }: Position): void {
  const looks = looksAtOwnKey(world, caller);
  if (!mine && looks && keeps(world, "read-includes-own-key")) return placeGone(world, caller);
  if (!predecessor) return hold(world, caller, revision);
  const seen = { ...turn, seenAt: revision };
  const both = turn.predecessorWatch?.with !== undefined;
  const decides = mayDecide(predecessor) || (both && !predecessor.isFar);
  const ruled = looks && keeps(world, "own-end-in-one-watch") && keeps(world, "own-key-is-watched");
  const moves = decides !== both && ruled;
  if (!suits(world, turn, predecessor) || moves) {
    follow(world, caller, seen, predecessor);
    return;
  }
  // The same predecessor, which may be the holder by now.
  const holder = predecessor.holder || turn.predecessor?.holder === true;
  tell(world, `${predecessor.key} is before it${holder ? ", and holds" : ""}`);
  const holdsSince = predecessor.holder ? 0 : turn.holdsSince;
  const known = { ...seen, predecessor: { ...predecessor, holder }, holdsSince };
  caller.state = known;
  if (!watches(known)) return;
  if (!sees(known)) return look(world, caller, known);
  verify(world, caller, known);
}

/** Whether what is watched must end before the turn of a place behind `predecessor`. */
function suits(
  world: World,
  { beforeWatch, predecessorWatch, predecessor: last }: Turn,
  predecessor: Predecessor,
): boolean {
  if (predecessorWatch) return isSame(world, last, predecessor);
  return isWatched(world, beforeWatch, predecessor.before);
}

const isSame = (world: World, one: Known | undefined, other: Known | undefined): boolean =>
  one !== undefined &&
  one.revision === other?.revision &&
  (one.key === other.key || !keeps(world, "twins-are-two"));

const isWatched = (world: World, watch: Turn["beforeWatch"], before: Known | undefined): boolean =>
  isSame(world, watch && { key: watch.key, revision: watch.of }, before);

/** The last answer has shown the predecessor, and the watches report what happened after it. */
function verify(world: World, caller: Caller, turn: Turn): void {
  const { predecessor, holdsSince } = turn;
  if (turn.deleted)
    return endedMeanwhile(world, caller, turn, predecessor?.holder === true && holdsSince === 0);
  caller.state = { ...turn, beforeWatch: watchBefore(world, turn, predecessor?.before), verified: true };
}

const watchBefore = (
  world: World,
  { beforeWatch }: Turn,
  before: Predecessor["before"],
): Turn["beforeWatch"] => {
  if (!before || isWatched(world, beforeWatch, before)) return before && beforeWatch;
  return { ...watchOn(before.key), of: before.revision };
};

/** The predecessor was deleted after the read was sent. */
function endedMeanwhile(world: World, caller: Caller, turn: Turn, wasHolder: boolean): void {
  if (wasHolder) hold(world, caller, turn.atLeast);
  else look(world, caller, turn);
}

/** A single deletion proves nothing: the predecessor may have been a waiter that gave up. */
export function predecessorDeleted(world: World, caller: Caller, turn: Turn, deletedAt: number): void {
  const { predecessor, verified, holdsSince } = turn;
  if (!predecessor || (deletedAt <= predecessor.revision && keeps(world, "older-events-are-ignored"))) return;
  const heard = { ...turn, deleted: true, atLeast: Math.max(turn.atLeast, deletedAt, holdsSince) };
  const wasHolder = predecessor.holder || !keeps(world, "known-holder");
  if (verified && wasHolder && deletedAt >= holdsSince) return hold(world, caller, deletedAt);
  caller.state = heard;
  // A read under way may show that it held. Otherwise the read follows when the watches exist.
  if (watches(heard) && !turn.read) look(world, caller, heard);
}

/** The writer before this reader has become a reader, or its key was put for some other reason. */
export function predecessorPut(world: World, caller: Caller, turn: Turn, putAt: number): void {
  caller.state = turn;
  if (!keeps(world, "downgrade-is-read")) return hold(world, caller, putAt);
  look(world, caller, { ...turn, atLeast: Math.max(turn.atLeast, putAt) });
}

/** No place can come between the two any more: after the holder, the predecessor holds. Otherwise a read shows who does. */
export function beforeDeleted(world: World, caller: Caller, turn: Turn, deletedAt: number): void {
  const { predecessor } = turn;
  const before = predecessor?.before;
  if (!predecessor || !before || turn.deleted) return;
  if (deletedAt <= before.revision && keeps(world, "older-events-are-ignored")) return;
  const holder = predecessor.holder || before.holder;
  const alone = { ...predecessor, holder, before: undefined };
  const holdsSince = before.holder ? deletedAt : 0;
  const heard = { ...turn, predecessor: alone, beforeWatch: undefined, holdsSince };
  caller.state = heard;
  if (holder || (turn.predecessorWatch && !watches(heard))) return;
  // The answer to a read that is sent together with the watch most often verifies it.
  look(world, caller, followAs(world, caller, heard, { predecessor: alone, decides: true }));
}

export function ownDeleted(world: World, caller: Caller, deletedAt: number): void {
  if (deletedAt <= placeOf(caller).revision && keeps(world, "older-events-are-ignored")) return;
  placeGone(world, caller);
}

/** The key of a waiting place was deleted by hand, as an event, or a read of the session's places, shows: the caller joins again. */
export function placeGone(world: World, caller: Caller): void {
  const place = placeOf(caller);
  tell(world, `${caller.label} finds its place gone, and will join anew`);
  if (keyOfPlace(world, place)?.deleted === 0) {
    breaks(world, "true losses", `${caller.label} takes its place for lost, but ${place.key} lives`);
  }
  endDelay(world, caller);
  gone(world, caller, undefined, { at: "again" });
}
