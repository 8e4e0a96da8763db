import { takeOverAnswered, takeOverUnanswered, takesOver } from "./adopting.js";
import { mayBeKept } from "./etcd.js";
import { hold } from "./holding.js";
import { gone, leave } from "./leaving.js";
import { loseSession } from "./sessions.js";
import { doubt } from "./sweeping.js";
import { wait } from "./waiting.js";
import type { CallerSetup } from "./scenarios.js";
import {
  keeps,
  keyName,
  placeOf,
  sessionOf,
  tell,
  type Answer,
  type Caller,
  type Key,
  type Txn,
  type World,
} from "./world.js";

/** The callers of the same session that queue under the same name. */
export const siblings = (world: World, caller: Caller): Caller[] => {
  const { session, name } = caller.setup;
  return world.callers.filter(
    (other) => other !== caller && other.setup.session === session && other.setup.name === name,
  );
};

/** One join of a session and name at a time: this makes the order of its calls the order of its revisions. */
export function mayJoin(world: World, caller: Caller): boolean {
  if (world.scenario.inTransfers && !isNext(world, caller)) return false;
  if (!isInLine(caller) || !keeps(world, "local-order-is-etcds")) return true;
  return !siblings(world, caller).some((other) => other.state.at === "joining" && isInLine(other));
}

/** Every caller before it has joined. */
function isNext(world: World, { id, places }: Caller): boolean {
  const before = world.callers[id - 1];
  return places > 0 || !before || (before.places > 0 && before.state.at !== "joining");
}

const directoryOf = ({ name, reads }: CallerSetup): string => (reads ? `${name}/read` : name);

const isInLine = (caller: Caller): boolean => !tries(caller) && !caller.setup.all;

const tries = ({ setup, asked }: Caller): boolean => setup.tries === true && !asked;

/** `lock()` or `tryLock()`: a new place under the first free number. */
export function ask(world: World, caller: Caller): void {
  if (takesOver(world, caller)) return;
  const value = caller.id * 16 + caller.places;
  caller.places++;
  caller.place = { key: freeKey(world, caller), value, revision: 0, unanswered: 0, turn: 1 };
  caller.state = { at: "joining", call: { txn: joinTxn(world, caller), answer: undefined } };
  const what = isInLine(caller) ? "asks to lock" : "tries to lock";
  tell(world, `${caller.label} ${what} "${caller.setup.name}" with key ${caller.place.key}`);
}

function freeKey(world: World, caller: Caller): string {
  const session = sessionOf(world, caller);
  const used = siblings(world, caller).flatMap(({ place }) => (place ? [place.key] : []));
  const taken = [...used, ...session.doubted];
  for (let n = 1; ; n++) {
    const key = keyName(directoryOf(caller.setup), session.lease, n);
    if (!taken.includes(key)) return key;
  }
}

function joinTxn(world: World, caller: Caller): Txn {
  const { name, asks } = caller.setup;
  const { key, value } = placeOf(caller);
  // The session's own last place is the predecessor then: the other places need not be read.
  const behindOurs =
    !caller.setup.reads && siblings(world, caller).some(({ place }) => place && place.revision > 0);
  const { lease } = sessionOf(world, caller);
  const is = isInLine(caller) ? "join" : "try";
  const shows = is === "join" ? !behindOurs : asks === true;
  return { is, name, key, value, lease, created: 0, asks: shows };
}

export function joinAnswered(world: World, caller: Caller, answer: Answer): void {
  tell(world, `${caller.label} gets the answer`);
  if (answer.leaseGone) return loseSession(world, sessionOf(world, caller));
  if (isTakenOver(caller)) return takeOverAnswered(world, caller, answer);
  if (!confirm(world, caller, answer)) return refused(world, caller, answer.first);
  if (caller.gaveUp) return leave(world, caller, { releases: false });
  const { position } = answer;
  const alone = triedAlone(caller) || (position?.mine === true && !position.predecessor);
  if (alone) hold(world, caller, answer.revision);
  else wait(world, caller, position?.predecessor);
}

const isTakenOver = ({ state }: Caller): boolean =>
  state.at === "joining" && state.call.txn.is === "take over";

/** Whether the transaction puts the place into an empty queue only. `lockAll()` joins with another one if that is not empty. */
const triedAlone = (caller: Caller): boolean =>
  tries(caller) || (caller.state.at === "joining" && caller.state.call.txn.is === "try");

/** If the place is in the queue, this is its create revision. */
function confirm(world: World, caller: Caller, answer: Answer): boolean {
  const place = placeOf(caller);
  if (answer.done) {
    caller.place = { ...place, revision: answer.revision };
    return true;
  }
  const { own } = answer;
  if (own === undefined || (own.value !== place.value && keeps(world, "own-value-decides"))) return false;
  // An earlier attempt succeeded: its revision counts, and that attempt is no longer in doubt.
  const revision = keeps(world, "own-create-revision") ? own.created : answer.revision;
  caller.place = { ...place, revision, unanswered: Math.max(0, place.unanswered - 1) };
  return true;
}

/**
 * The queue is not empty, or the key exists with another value: that of a late put, or of another process with the same
 * lease.
 */
function refused(world: World, caller: Caller, first: Key | undefined): void {
  const { state, gaveUp } = caller;
  const tried = state.at === "joining" && state.call.txn.is === "try";
  if (tries(caller) && first && !gaveUp && mayAsk(world, caller, first)) return askFor(world, caller, first);
  if (tries(caller) || (tried && gaveUp)) return gone(world, caller, undefined);
  if (tried) return joinAfterTry(world, caller, state.call.txn);
  const { key } = placeOf(caller);
  doubt(world, caller, key);
  tell(world, `${key} is not the one that it has put`);
  caller.place = undefined;
  ask(world, caller);
}

/** A join makes a session give back a key that nobody has. */
const mayAsk = (world: World, caller: Caller, key: Key): boolean =>
  key.lease !== sessionOf(world, caller).lease &&
  mayBeKept(world, key) &&
  !siblings(world, caller).some(({ place }) => place);

function askFor(world: World, caller: Caller, { key }: Key): void {
  const { key: own, unanswered } = placeOf(caller);
  if (unanswered > 0) doubt(world, caller, own);
  tell(world, `nobody may have ${key}: it joins behind it for a while`);
  caller.place = undefined;
  caller.asked = true;
  ask(world, caller);
}

/** `lockAll()`: a late attempt of the try may still put the key that it joins with. */
function joinAfterTry(world: World, caller: Caller, txn: Txn): void {
  caller.state = { at: "joining", call: { txn: { ...txn, is: "join" }, answer: undefined } };
  tell(world, `${caller.label} joins the queue`);
}

/** The attempt may be applied now or later. */
export function joinUnanswered(world: World, caller: Caller, txn: Txn): void {
  if (txn.is === "take over") return takeOverUnanswered(world, caller, txn);
  const place = placeOf(caller);
  caller.place = { ...place, unanswered: place.unanswered + 1 };
  if (caller.gaveUp) return leave(world, caller, { releases: false });
  caller.state = { at: "joining", call: { txn, answer: undefined } };
  tell(world, `${caller.label} sends its join again`);
}
