import { forgetDowngrade } from "./downgrading.js";
import { keyOfPlace } from "./etcd.js";
import { endDelay, gone } from "./leaving.js";
import { readAgain } from "./reading.js";
import {
  breaks,
  isShared,
  keeps,
  placeOf,
  tell,
  tokenOf,
  tokenText,
  watchOn,
  type Caller,
  type Demand,
  type Holding,
  type Position,
  type Read,
  type World,
} from "./world.js";

/** The caller has the lock and claims it. `asOf`: the revision of the answer, or of the deletion, that shows its turn. 0: neither does. */
export function hold(world: World, caller: Caller, asOf: number, demand?: Demand): void {
  const place = placeOf(caller);
  const chooses = caller.setup.priority !== undefined && { chooses: true as const };
  caller.state = { at: "holding", ownWatch: undefined, read: undefined, demand, ...chooses };
  tell(world, `${caller.label} HOLDS "${caller.setup.name}" with fence ${tokenText(tokenOf(place))}`);
  const deleted = keyOfPlace(world, place)?.deleted ?? 0;
  if (deleted > 0 && deleted <= asOf) {
    const what = `${caller.label} holds since revision ${asOf}, but ${place.key} was deleted at ${deleted}`;
    breaks(world, "single holder", what);
  }
  grant(world, caller);
}

/** Of two grants whose keys live, the later one has the higher fence. */
function grant(world: World, caller: Caller): void {
  const { name } = caller.setup;
  // Readers are granted in any order.
  if (isShared(caller)) return;
  const token = tokenOf(placeOf(caller));
  const highest = world.granted[name] ?? 0;
  if (keyOfPlace(world, placeOf(caller))?.deleted !== 0) return;
  if (token < highest || (token === highest && !placeOf(caller).adopted))
    breaks(world, "fencing", `fence ${tokenText(token)} was granted after ${tokenText(highest)}`);
  world.granted = { ...world.granted, [name]: Math.max(token, highest) };
}

function ownKeyRead(caller: Caller, atLeast: number): Read {
  return {
    linearizable: false,
    atLeast: Math.max(atLeast, placeOf(caller).revision),
    answer: undefined,
  };
}

/** The hold has lasted long enough that a watch for a deletion of its key is worthwhile. */
export function watchHeldKey(world: World, caller: Caller, state: Holding): void {
  caller.state = { ...state, ownWatch: watchOn(placeOf(caller).key) };
  tell(world, `${caller.label} has held for a while and asks for a watch on its own key`);
}

/** The key may have been deleted before the watch began; only a read after that shows it. */
export function heldKeyWatched(world: World, caller: Caller, state: Holding): void {
  const verified = keeps(world, "holders-watch-is-verified");
  const read = verified ? ownKeyRead(caller, state.ownWatch?.createdAt ?? 0) : undefined;
  caller.state = { ...state, read };
}

export function heldKeyRead(world: World, caller: Caller, state: Holding, answer: Position): void {
  tell(world, `${caller.label} gets the answer of revision ${answer.revision}`);
  const next = readAgain(world, state.read!, answer);
  if (next || answer.mine) caller.state = { ...state, read: next };
  else lose(world, caller);
}

export function heldKeyDeleted(world: World, caller: Caller, deletedAt: number): void {
  if (deletedAt <= placeOf(caller).revision && keeps(world, "older-events-are-ignored")) return;
  lose(world, caller);
}

/** The lock is lost: its signal aborts. */
export function lose(world: World, caller: Caller): void {
  const place = placeOf(caller);
  tell(world, `${caller.label} is told that its lock is lost`);
  if (keyOfPlace(world, place)?.deleted === 0) {
    breaks(world, "true losses", `${caller.label} is told of a loss, but ${place.key} lives`);
  }
  forgetDowngrade(world, caller);
  endDelay(world, caller);
  gone(world, caller, undefined);
}

/** The holder checks `held` and decides to write. Whatever happens then, the write will arrive. */
export function decideToWrite(world: World, caller: Caller): void {
  caller.writing = tokenOf(placeOf(caller));
  tell(
    world,
    `${caller.label} sees that it holds, and begins a write with fence ${tokenText(caller.writing)}`,
  );
}

/** The protected resource rejects a fence lower than one that it has seen. */
export function writeArrives(world: World, caller: Caller): void {
  const { name } = caller.setup;
  const fence = caller.writing;
  const highest = world.written[name] ?? 0;
  caller.writing = 0;
  const [stale, refused] = [fence < highest, isRefused(world, fence, highest)];
  const [text, other] = [tokenText(fence), tokenText(highest)];
  if (refused)
    return tell(world, `${caller.label}'s write with fence ${text} is refused: ${other} has written`);
  tell(world, `${caller.label}'s write with fence ${text} is accepted`);
  if (stale) breaks(world, "fencing", `fence ${text} was accepted after ${other} had written`);
  world.written = { ...world.written, [name]: Math.max(fence, highest) };
}

/** By the fence, and between two turns of one fence by the turn. */
function isRefused(world: World, token: number, highest: number): boolean {
  const fence = Math.floor(token / 16) < Math.floor(highest / 16);
  return keeps(world, fence ? "fence-is-checked" : "turn-is-checked") && token < highest;
}
