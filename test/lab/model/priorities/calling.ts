// One call, as in `src/lock/queue/priority-waiter.ts`: from its line to its hold, and to the end of that.
import { breaks, keeps, keyName, tell } from "../world.js";
import {
  type Answer,
  type Call,
  type Caller,
  type Entry,
  isBefore,
  type Key,
  keyAt,
  keyOf,
  type NextPlace,
  type Priorities,
  queueAt,
  sessionOf,
  siblings,
  type State,
  type Txn,
} from "./world.js";

/** `lock({ priority })`. */
export function ask(world: Priorities, caller: Caller): void {
  tell(world, `${caller.label} asks for the lock with rank ${caller.rank}`);
  caller.state = { at: "line" };
  if (mayJoin(world, caller)) join(world, caller);
}

/** One call of a session joins at a time, the best first. */
export function mayJoin(world: Priorities, caller: Caller): boolean {
  const others = siblings(world, caller);
  if (others.some(({ state }) => state.at === "joining")) return false;
  return !others.some(
    ({ state, rank, id }) =>
      state.at === "line" && (rank === caller.rank ? id < caller.id : rank < caller.rank),
  );
}

/** Tries the lock, if its session has no key in the queue. Otherwise it puts its place. */
export function join(world: Priorities, caller: Caller): void {
  const next = toLetPass(world, caller);
  if (next) return letPass(world, caller, next);
  const isThere = siblings(world, caller).some(({ place, hold }) =>
    [place, hold].some((entry) => entry !== undefined && entry.revision > 0),
  );
  send(world, caller, isThere ? "place" : "claim");
}

/** The next place, if nobody holds and the call is no better: its claim is on its way, and fails if another call joins before. */
function toLetPass(world: Priorities, caller: Caller): NextPlace | undefined {
  const { next } = sessionOf(world, caller);
  if (caller.hasLetPass || !next || caller.rank < next.rank) return undefined;
  return keeps(world, "next-claim-passes") ? next : undefined;
}

/** Until its key has ended, and for a while at most. */
function letPass(world: Priorities, caller: Caller, next: NextPlace): void {
  tell(world, `${caller.label} lets the claim of ${next.key} pass`);
  caller.state = { at: "passing", next };
}

export function passed(world: Priorities, caller: Caller): void {
  caller.hasLetPass = true;
  caller.state = { at: "line" };
  if (mayJoin(world, caller)) join(world, caller);
}

/** `from`: lower numbers are another's. */
function send(world: Priorities, caller: Caller, is: "claim" | "place", from = 1): void {
  const { place, outlook, rank } = caller;
  const { id: lease } = sessionOf(world, caller);
  const used = [caller, ...siblings(world, caller)].flatMap((each) => [each.place?.key, each.hold?.key]);
  let n = from;
  while (used.includes(keyName("jobs", lease, n))) n++;
  const entry = {
    ...{ key: keyName("jobs", lease, n), value: caller.id * 16 + caller.puts, revision: 0, unanswered: 0 },
  };
  caller.puts++;
  const txn: Txn = {
    ...{ is, key: entry.key, value: entry.value, lease, rank, created: 0 },
    place: is === "claim" && place ? { key: place.key, created: place.revision } : undefined,
    gone: outlook?.blockers ?? [],
    since: outlook?.revision ?? 0,
    passes: is === "place" && !caller.hasLetPass ? sessionOf(world, caller).next : undefined,
  };
  if (is === "claim") caller.hold = entry;
  else caller.place = entry;
  caller.outlook = undefined;
  const call: Call = { txn, answer: undefined };
  caller.state = place ? { at: "claiming", call } : { at: "joining", call };
  tell(world, `${caller.label} sends the ${is} of ${entry.key}`);
}

/** The answer to a claim, or to the put of a place. */
export function answered(world: Priorities, caller: Caller, { txn, answer }: Call): void {
  if (!answer) return;
  tell(world, `${caller.label} gets the answer`);
  if (answer.leaseGone) return sessionOver(world, caller);
  const entry = txn.is === "claim" ? caller.hold! : caller.place!;
  const own = keyAt(world, entry.key, answer.revision);
  const isDone = answer.done || own?.value === entry.value;
  if (!isDone) return refused(world, caller, txn, entry, answer);
  const joined = confirmed(world, entry, answer, own);
  if (txn.is === "claim") return granted(world, caller, joined);
  caller.place = joined;
  look(world, caller, answer.revision);
  goOn(world, caller);
}

/** An earlier attempt may have put the key: then its revision counts, and that attempt is in doubt no more. */
function confirmed(world: Priorities, entry: Entry, { done, revision }: Answer, own: Key | undefined): Entry {
  if (done) return { ...entry, revision };
  const created = keeps(world, "own-create-revision") ? own!.created : revision;
  return { ...entry, revision: created, unanswered: Math.max(0, entry.unanswered - 1) };
}

function refused(world: Priorities, caller: Caller, txn: Txn, entry: Entry, answer: Answer): void {
  forget(world, caller, entry);
  const own = keyAt(world, entry.key, answer.revision);
  const next = own ? Number(entry.key.split("-")[1] ?? 1) + 1 : 1;
  if (txn.is === "place") return caller.gaveUp ? leave(world, caller) : send(world, caller, "place", next);
  const { place } = caller;
  look(world, caller, answer.revision);
  if (caller.gaveUp) return leave(world, caller);
  if (caller.outlook?.blockers && !caller.outlook.behind && caller.place === place)
    return send(world, caller, "claim", next);
  if (txn.place) return goOn(world, caller);
  const toPass = toLetPass(world, caller);
  if (toPass) letPass(world, caller, toPass);
  else send(world, caller, "place", next);
}

/** A late attempt may still put the key. */
function forget(world: Priorities, caller: Caller, entry: Entry): void {
  if (entry.unanswered > 0) sessionOf(world, caller).sweeps = true;
  if (caller.hold === entry) caller.hold = undefined;
  else caller.place = undefined;
}

function granted(world: Priorities, caller: Caller, hold: Entry): void {
  const { place } = caller;
  caller.hold = hold;
  if (place) placeGone(world, caller);
  if (caller.gaveUp) return leave(world, caller);
  const fence = keeps(world, "fence-of-the-grant") ? hold.revision : (place ?? hold).revision;
  caller.state = { at: "holding" };
  tell(world, `${caller.label} HOLDS with fence ${fence}`);
  if (keyOf(world, hold)?.deleted !== 0) return;
  if (fence <= world.granted) breaks(world, "fencing", `fence ${fence} was granted after ${world.granted}`);
  world.granted = Math.max(fence, world.granted);
}

/** What the queue of `revision` means to the call. */
export function look(world: Priorities, caller: Caller, revision: number): void {
  const { place, rank } = caller;
  const queue = queueAt(world, revision);
  const blockers = queue.filter(({ granted }) => granted && keeps(world, "holds-are-in-the-way"));
  const [one, ...rest] = blockers.length > 0 ? [] : queue;
  const next = one && rest.reduce((a, b) => (isBefore(b, a) ? b : a), one);
  sessionOf(world, caller).next = next && { key: next.key, created: next.created, rank: next.rank };
  if (!place) {
    const [behind] = queue;
    caller.outlook = { revision, blockers: blockers.map(({ key }) => key), behind };
    return;
  }
  const own = { rank, created: place.revision };
  const others = queue.filter(({ key, granted }) => !granted && key !== place.key);
  const [first, ...more] = others.filter((other) => isBetter(world, other, own));
  const last = first && more.reduce((a, b) => (isBefore(a, b) ? b : a), first);
  const behind = last ?? blockers[0];
  const mayClaim = last === undefined || !keeps(world, "end-of-a-place-is-read-for");
  caller.outlook = {
    ...{ revision, blockers: mayClaim ? blockers.map(({ key }) => key) : undefined },
    behind: behind && { key: behind.key, created: behind.created },
  };
  const isThere = queue.some(({ key, created }) => key === place.key && created === place.revision);
  if (!isThere) placeGone(world, caller);
}

const isBetter = (world: Priorities, other: Key, own: Pick<Key, "rank" | "created">): boolean =>
  keeps(world, "equal-ranks-by-age") ? isBefore(other, own) : other.rank <= own.rank;

/** Its place has ended, which wakes the calls of its session that have waited for that. */
function placeGone(world: Priorities, caller: Caller): void {
  if (caller.place) forget(world, caller, caller.place);
  wakeSiblings(world, caller);
}

function wakeSiblings(world: Priorities, caller: Caller): void {
  for (const other of siblings(world, caller))
    if (other.state.at === "local" && other.state.below === caller.id) read(world, other);
}

/** After a look: it claims, waits, or joins anew. */
export function goOn(world: Priorities, caller: Caller): void {
  const { place, outlook, gaveUp } = caller;
  if (gaveUp) return leave(world, caller);
  if (!place) {
    tell(world, `${caller.label}'s place is gone`);
    caller.state = { at: "line" };
    if (mayJoin(world, caller)) join(world, caller);
    return;
  }
  if (!outlook?.behind) return send(world, caller, "claim");
  const below = lastBefore(world, caller);
  if (below) {
    caller.outlook = undefined;
    caller.state = { at: "local", below: below.id };
    tell(world, `${caller.label} waits for the end of the place of ${below.label}`);
    return;
  }
  caller.state = { at: "waiting", watch: { createdAt: 0, position: 0 }, check: undefined };
  tell(world, `${caller.label} asks for a watch on ${outlook.behind.key}`);
}

/** The last call of its session before it that has a place. */
function lastBefore(world: Priorities, { place, rank, id }: Caller): Caller | undefined {
  const own = { rank, created: place!.revision };
  const standing = world.callers
    .filter((other) => other.id !== id && other.setup.session === world.callers[id]!.setup.session)
    .filter(
      (other) => other.place && other.place.revision > 0 && !other.gaveUp && other.state.at !== "leaving",
    )
    .map((other) => ({ other, rank: other.rank, created: other.place!.revision }))
    .filter((other) => isBefore(other, own))
    .sort((a, b) => (isBefore(a, b) ? 1 : -1));
  return standing[0]?.other;
}

type Waiting = Extract<State, { at: "waiting" }>;

/** The key that it waits for may have ended between the answer that has shown it and the watch. */
export function watching(world: Priorities, caller: Caller, createdAt: number): void {
  const watch = { createdAt, position: createdAt };
  const isLater = createdAt > caller.outlook!.revision && keeps(world, "key-is-read-after-a-later-watch");
  caller.state = { at: "waiting", watch, check: isLater ? { answer: 0 } : undefined };
}

export function deletionHeard(world: Priorities, caller: Caller, state: Waiting, deletedAt: number): void {
  const { created } = caller.outlook!.behind!;
  caller.state = { ...state, watch: { ...state.watch, position: deletedAt } };
  if (deletedAt > created) ended(world, caller);
}

export function checked(world: Priorities, caller: Caller, state: Waiting, revision: number): void {
  const { key, created } = caller.outlook!.behind!;
  tell(world, `${caller.label} gets the answer of revision ${revision}`);
  if (keyAt(world, key, revision)?.created === created) caller.state = { ...state, check: undefined };
  else ended(world, caller);
}

/** Behind a holder, it claims at once. Behind a better place, the queue may be any. */
function ended(world: Priorities, caller: Caller): void {
  if (caller.outlook?.blockers) send(world, caller, "claim");
  else read(world, caller);
}

export function read(world: Priorities, caller: Caller): void {
  caller.outlook = undefined;
  caller.state = { at: "reading", answer: 0 };
  tell(world, `${caller.label} reads the queue`);
}

/** It claims nothing any more: deletes its place, and the key of a hold that it has, or that a late attempt may still put. */
export function leave(world: Priorities, caller: Caller): void {
  const { label, rank } = caller;
  const { id: lease } = sessionOf(world, caller);
  const entries = [caller.hold, caller.place].filter((entry) => entry !== undefined);
  if (entries.some(({ unanswered }) => unanswered > 0)) sessionOf(world, caller).sweeps = true;
  const calls = entries.map(({ key, value, revision: created }): Call => {
    const txn: Txn = { is: "leave", key, value, lease, rank, created, place: undefined, gone: [], since: 0 };
    return { txn, answer: undefined };
  });
  if (calls.length === 0) return end(caller);
  caller.outlook = undefined;
  caller.state = { at: "leaving", calls };
  tell(world, `${label} sends the delete of ${entries.map(({ key }) => key).join(" and ")}`);
  if (keeps(world, "every-end-wakes-ours")) wakeSiblings(world, caller);
}

/** One of its keys is gone. */
export function left(
  world: Priorities,
  caller: Caller,
  { txn, answer }: Call,
  others: readonly Call[],
): void {
  tell(world, `${caller.label} gets the answer`);
  if (!answer?.done) endDelay(world, caller);
  const entry = [caller.hold, caller.place].find((each) => each?.key === txn.key);
  if (entry) forget(world, caller, entry);
  if (others.length > 0) caller.state = { at: "leaving", calls: others };
  else end(caller);
}

/** Its key is gone, and it is told that. */
export function lose(world: Priorities, caller: Caller): void {
  tell(world, `${caller.label} is told that its lock is lost`);
  endDelay(world, caller);
  if (caller.hold) forget(world, caller, caller.hold);
  end(caller);
}

/** Another client has deleted its key: the delay key is left. */
function endDelay(world: Priorities, caller: Caller): void {
  const session = sessionOf(world, caller);
  if (session.delayLease > 0) session.sweeps = true;
}

export function end(caller: Caller): void {
  caller.place = caller.hold = caller.outlook = undefined;
  caller.rounds--;
  caller.state = { at: caller.rounds > 0 && !caller.gaveUp ? "idle" : "done" };
}

/** It was sent again if anybody still wants it. Otherwise its key leaves, in case it was put. */
export function unanswered(world: Priorities, caller: Caller, txn: Txn): void {
  const { state } = caller;
  const call: Call = { txn, answer: undefined };
  if (state.at === "leaving") {
    caller.state = {
      at: "leaving",
      calls: state.calls.map((each) => (each.txn.key === txn.key ? call : each)),
    };
    tell(world, `${caller.label} sends its delete again`);
    return;
  }
  const entry = txn.is === "claim" ? "hold" : "place";
  const before = caller[entry]!;
  caller[entry] = { ...before, unanswered: before.unanswered + 1 };
  if (caller.gaveUp) return leave(world, caller);
  caller.state = state.at === "claiming" ? { at: "claiming", call } : { at: "joining", call };
  tell(world, `${caller.label} sends its ${txn.is} again`);
}

/** Holds end with a loss, and waits with an error. Nothing more is sent. */
export function sessionOver(world: Priorities, caller: Caller): void {
  const session = sessionOf(world, caller);
  noteHeld(world, session.id);
  session.client = "over";
  session.sweeps = false;
  tell(world, `${session.label}'s session is lost`);
  for (const each of world.callers.filter(({ setup }) => setup.session === session.id)) {
    each.place = each.hold = each.outlook = undefined;
    each.state = { at: "done" };
  }
}

/** Its work may still write. */
export function noteHeld(world: Priorities, id: number): void {
  const session = world.sessions[id]!;
  const holds = world.callers.some(
    ({ setup, state, hold }) =>
      setup.session === id && state.at === "holding" && hold && keyOf(world, hold)?.deleted === 0,
  );
  if (session.delayLease > 0 && holds) session.delaying = true;
}
