import { positionAt } from "../../../lab/model/etcd.js";
import { type Caller, neededWatches, type Read, watches, type World } from "../../../lab/model/world.js";
import { will } from "../../../lab/model/step.js";
import { placeGone } from "../../../lab/model/waiting.js";
import { after, take, withState } from "./world-of.js";

/** What the answer to a read of the queue shows. */
export interface Shown {
  readonly revision: number;
  readonly mine: boolean;
  /** The create revision of the place before this one. */
  readonly before: number | undefined;
}

/** What the answer to a read of one key shows: its create revision, or 0. */
export interface KeyShown {
  readonly revision: number;
  readonly created: number;
}

const placeAt = (world: World, revision: number): Caller | undefined =>
  world.callers.find(({ place }) => place?.revision === revision);

/** A read that the client has sent; one that it will send is not linearizable. */
interface Sent extends Read {
  /**
   * The requests that may be this read's, last one last. One that asks a quorum may be a repetition for an older read, in which
   * the client has no interest any more.
   */
  readonly calls: readonly number[];
}

const SENT = { linearizable: true, answer: undefined } as const;

const callsOf = (read: Read | undefined): readonly number[] => (read as Sent | undefined)?.calls ?? [];

/** A request for the queue as a place sees it. */
export interface QueueRead {
  readonly place: number;
  readonly call: number;
  readonly quorum: boolean;
}

/**
 * A client may read at any time: an attempt of a read that it has given up may still be repeated. The answer counts only if
 * the watches that it is to verify existed when the read was sent, or are asked for together with it.
 */
export function queueReadSent(world: World, { place, call, quorum }: QueueRead): World[] {
  const caller = placeAt(world, place);
  if (caller?.state.at !== "waiting") return [world];
  const { state, id } = caller;
  if (state.predecessor && !watches(state) && !state.read) return [world];
  const least = Math.max(state.atLeast, ...neededWatches(state).map(({ createdAt }) => createdAt));
  const calls = [...(quorum ? callsOf(state.read) : []), call];
  const read: Sent = { ...SENT, atLeast: least, calls };
  return [withState(world, id, { ...state, read })];
}

/** An answer to an older read than the last one is ignored, unless the own key is missing in it. */
export function queueReadAnswered(world: World, { place, call, quorum }: QueueRead, shown: Shown): World[] {
  const caller = placeAt(world, place);
  if (caller?.state.at !== "waiting") return [world];
  const calls = callsOf(caller.state.read);
  if (!calls.includes(call)) return shown.mine ? [world] : [world, ...placeGoneIn(world, caller, shown)];
  const answered = readAnswered(world, caller, shown);
  return quorum || calls.length > 1 ? [world, ...answered] : answered;
}

/** A place that lives is not gone. */
function placeGoneIn(world: World, caller: Caller, { revision }: Shown): World[] {
  const { mine } = positionAt(world, caller.setup.name, caller.place!, revision);
  return mine ? [] : after(world, will(caller, "places read", placeGone));
}

function readAnswered(world: World, { id, place, setup }: Caller, shown: Shown): World[] {
  const { mine, predecessor } = positionAt(world, setup.name, place!, shown.revision);
  if (mine !== shown.mine || (mine && predecessor?.revision !== shown.before)) return [];
  const at = { ...world, revision: shown.revision };
  return take(at, "read arrives", id)
    .flatMap((next) => take(next, "read answered", id))
    .map((next) => unsent({ ...next, revision: world.revision }, id));
}

/** A read that must be repeated is not sent yet. */
function unsent(world: World, id: number): World {
  const { state } = world.callers[id]!;
  if ((state.at !== "waiting" && state.at !== "holding") || !state.read?.linearizable) return world;
  const read: Read = { atLeast: state.read.atLeast, linearizable: false, answer: undefined };
  return withState(world, id, { ...state, read });
}

/** A holder may read its key at any time. Others read keys of the session, too: the sweep does. */
export function keyReadAnswered(world: World, key: string, shown: KeyShown): World[] {
  const caller = holderOf(world, key);
  if (!caller) return placeAudited(world, key, shown);
  const answered = ownKeyShown(world, caller, shown);
  return caller.place!.revision === shown.created ? answered : [world, ...answered];
}

/** A session reads the keys of its waiting places that a list did not show. It reads others, too, for whose places it has no interest. */
function placeAudited(world: World, key: string, { created }: KeyShown): World[] {
  const waits = ({ place, state }: Caller): boolean =>
    place?.key === key && place.revision !== created && (state.at === "waiting" || state.at === "local");
  const caller = world.callers.find(waits);
  if (!caller) return [world];
  return [world, ...after(world, will(caller, "places read", placeGone))];
}

/** An answer that shows the own key is gone, to which the client listens in any case. */
export function keyGone(world: World, key: string, shown: KeyShown): World[] {
  const caller = holderOf(world, key);
  return caller ? ownKeyShown(world, caller, shown) : [world];
}

const holderOf = (world: World, key: string): Caller | undefined =>
  world.callers.find(({ place, state }) => place?.key === key && state.at === "holding");

function ownKeyShown(world: World, { id, state, place }: Caller, shown: KeyShown): World[] {
  if (state.at !== "holding") return [world];
  const read: Read = { ...SENT, atLeast: state.read?.atLeast ?? place!.revision };
  const reading = withState(world, id, { ...state, read });
  const at = { ...reading, revision: shown.revision };
  return take(at, "read arrives", id)
    .flatMap((next) => take(next, "read answered", id))
    .map((next) => unsent({ ...next, revision: world.revision }, id));
}
