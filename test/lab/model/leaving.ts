import { forgetDowngrade } from "./downgrading.js";
import { keyOfPlace } from "./etcd.js";
import { hold } from "./holding.js";
import { siblings } from "./joining.js";
import { doubt } from "./sweeping.js";
import { leaveOnly, tellLeft, transferEnded } from "./transferring.js";
import { wait } from "./waiting.js";
import {
  breaks,
  keeps,
  placeOf,
  sessionOf,
  tell,
  type Answer,
  type Caller,
  type Key,
  type Leaving,
  type State,
  type Txn,
  type World,
} from "./world.js";

/** Deletes the place; repeated until etcd has confirmed it. From here on, the caller claims nothing. */
export function leave(world: World, caller: Caller, { releases }: { readonly releases: boolean }): void {
  const { key, value, revision, unanswered } = placeOf(caller);
  forgetDowngrade(world, caller);
  // Before the delete: a late put may arrive right after it.
  if (unanswered > 0) doubt(world, caller, key);
  const session = sessionOf(world, caller);
  const txn: Txn = {
    is: "leave",
    name: caller.setup.name,
    key,
    value,
    lease: session.lease,
    created: revision,
    asks: successor(world, caller) !== undefined,
  };
  caller.state = { at: "leaving", call: { txn, answer: undefined }, releases, repeated: false };
  const what = releases ? "releases" : "leaves the queue";
  tell(world, `${caller.label} ${what}: it sends the delete of ${key}`);
}

/** The caller of the same session that waits for the end of this place. */
const successor = (world: World, caller: Caller): Caller | undefined =>
  siblings(world, caller).find(({ state }) => state.at === "local" && state.below === caller.id);

export function leaveAnswered(world: World, caller: Caller, state: Leaving, answer: Answer): void {
  tell(world, `${caller.label} gets the answer`);
  if (state.call.txn.is === "transfer" && !transferEnded(world, caller, state, answer)) return;
  if (state.refused) tellLeft(world, caller);
  // An earlier attempt may have deleted it, or the same one if a proxy sent it twice.
  if (!answer.done) endDelay(world, caller);
  const taken = state.releases && !answer.done && !keeps(world, "repeated-release-is-no-loss");
  if (taken && !state.repeated && !state.yields) toldByRelease(world, caller);
  gone(world, caller, answer.first, state.yields && { at: "again" });
}

/** Somebody else has deleted the place: its session deletes the delay key, and until then no other place gets the number. */
export function endDelay(world: World, caller: Caller): void {
  const { delayLease } = sessionOf(world, caller);
  if (delayLease && keeps(world, "delay-key-of-a-lost-place")) doubt(world, caller, placeOf(caller).key);
}

function toldByRelease(world: World, caller: Caller): void {
  tell(world, `${caller.label}'s release says that the lock was lost before`);
  if (keyOfPlace(world, placeOf(caller))?.deletedBy !== "its owner") return;
  breaks(world, "true losses", `${caller.label} is told of a loss that was its own delete`);
}

export function leaveUnanswered(world: World, caller: Caller, state: Leaving): void {
  const { call, releases } = state;
  const isTransfer = call.txn.is === "transfer";
  if (isTransfer && !keeps(world, "unanswered-transfer-is-repeated")) return leaveOnly(world, caller, state);
  if (!releases && !keeps(world, "cleanup-is-repeated")) {
    tell(world, `${caller.label} gives its cleanup up`);
    return gone(world, caller, undefined);
  }
  caller.state = { ...state, call: { txn: call.txn, answer: undefined }, repeated: true };
  tell(world, `${caller.label} sends its delete again`);
}

/**
 * Every end of a place wakes the local waiter behind it once; `first` is the key that is first now, if the answer
 * contained it.
 */
export function gone(world: World, caller: Caller, first: Key | undefined, next?: State): void {
  const behind = successor(world, caller);
  if (placeOf(caller).unanswered > 0) doubt(world, caller, placeOf(caller).key);
  caller.place = undefined;
  caller.state = next ?? end(caller);
  if (behind) wake(world, behind, first);
}

function end(caller: Caller): State {
  caller.rounds--;
  return caller.rounds > 0 && !caller.gaveUp ? { at: "idle" } : { at: "done" };
}

/**
 * `first` proves that it is this waiter's turn. Any other end of the place before it proves nothing: the waiter reads
 * again.
 */
function wake(world: World, behind: Caller, first: Key | undefined): void {
  const place = placeOf(behind);
  const proven = first?.key === place.key && first.created === place.revision;
  if (proven || !keeps(world, "local-successor-looks")) {
    hold(world, behind, 0);
  } else if (first || keeps(world, "every-end-wakes")) {
    wait(world, behind, undefined);
  }
}
