// What a writer does to become a reader without letting go: it puts its key again, and the readers of its session that wait for it
// alone are let in when etcd has answered.
import { lose } from "./holding.js";
import { siblings } from "./joining.js";
import { may, type Step } from "./step.js";
import { wait } from "./waiting.js";
import {
  keeps,
  placeOf,
  sessionOf,
  tell,
  type Answer,
  type Caller,
  type Holding,
  type Txn,
  type World,
} from "./world.js";

export function downgradeSteps(_world: World, caller: Caller, { call }: Holding): Step[] {
  if (!caller.setup.downgrades || call || placeOf(caller).downgraded || caller.writing > 0) return [];
  return [may(caller, "downgrade", downgrade)];
}

/** From the call on, others may read beside it. */
function downgrade(world: World, caller: Caller): void {
  const { state } = caller;
  if (state.at !== "holding") return;
  tell(world, `${caller.label} becomes a reader`);
  caller.place = { ...placeOf(caller), downgraded: true };
  send(world, caller, state);
}

function send(world: World, caller: Caller, state: Holding): void {
  const { key, value, revision, modified = revision } = placeOf(caller);
  const { lease } = sessionOf(world, caller);
  const { name } = caller.setup;
  const txn: Txn = { is: "downgrade", name, key, value, lease, created: revision, modified, asks: false };
  caller.state = { ...state, call: { txn, answer: undefined } };
  tell(world, `it sends a put of ${key}`);
}

export function downgradeAnswered(
  world: World,
  caller: Caller,
  state: Holding,
  { done, revision, own }: Answer,
): void {
  tell(world, `${caller.label} gets the answer`);
  const { at, ownWatch, read, demand } = state;
  caller.state = { at, ownWatch, read, demand };
  // Not an attempt before, without an answer, or of a proxy's: somebody has put the key meanwhile.
  if (!done && own?.created !== placeOf(caller).revision) return lose(world, caller);
  if (!done && own?.downgraded === undefined) {
    const { modified } = own!;
    caller.place = { ...placeOf(caller), ...(modified !== undefined && { modified }) };
    return send(world, caller, caller.state);
  }
  if (!keeps(world, "downgraded-key-stays")) caller.place = { ...placeOf(caller), revision };
  if (!keeps(world, "own-readers-are-let-in")) return;
  for (const behind of siblings(world, caller))
    if (behind.setup.reads && behind.state.at === "local" && behind.state.below === caller.id)
      wait(world, behind, undefined);
}

/** The hold ends before the answer: the put may still arrive. */
export function forgetDowngrade(world: World, { state }: Caller): void {
  if (state.at === "holding" && state.call && !state.call.answer)
    world.late = [...world.late, state.call.txn];
}
