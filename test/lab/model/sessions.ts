import { adoptions, unclaimed } from "./adopting.js";
import { forgetDowngrade } from "./downgrading.js";
import { deleteKeys, keyOfPlace } from "./etcd.js";
import { demandMoved } from "./keeping.js";
import { seenBy } from "./reading.js";
import { progress, type Step } from "./step.js";
import { sweeps } from "./sweeping.js";
import { forgetTransfer } from "./transferring.js";
import { follow } from "./waiting.js";
import { keeps, placeOf, tell, type Caller, type Key, type Session, type World } from "./world.js";

const callersOf = (world: World, session: Session): Caller[] =>
  world.callers.filter((caller) => caller.setup.session === session.id);

/** The session is over: holds end with a loss, waiting calls reject, and nothing more is sent. */
export function loseSession(world: World, session: Session): void {
  noteHeld(world, session);
  session.client = "over";
  session.doubted = [];
  session.adopted = [];
  session.sweeps = false;
  tell(world, `${session.label}'s session is lost`);
  for (const caller of callersOf(world, session)) {
    const waits = caller.state.at === "waiting" || caller.state.at === "local";
    if (waits && !keeps(world, "waiters-hear-of-the-session")) continue;
    forgetDowngrade(world, caller);
    forgetTransfer(world, caller);
    caller.state = { at: "done" };
    caller.place = undefined;
  }
}

/** etcd deletes all keys of a lease in one revision. */
export function endLease(world: World, session: Session, deletedBy: "its lease" | "hand"): void {
  const lease = session.lease;
  world.leases = world.leases.map((alive, id) => alive && id !== lease);
  const ends = ({ lease: of }: Key): boolean =>
    of === lease ||
    (session.delayLease > 0 && of === session.delayLease && !keeps(world, "delay-outlives-lease"));
  const ended = world.keys.filter((key) => key.deleted === 0 && ends(key));
  noteHeld(world, session);
  if (ended.length === 0) return;
  deleteKeys(world, ends, deletedBy);
  world.revision++;
}

/** What it holds when it ends: its work may still write. */
function noteHeld(world: World, session: Session): void {
  if (!session.delayLease) return;
  const held = callersOf(world, session).filter(
    (caller) => caller.state.at === "holding" && keyOfPlace(world, placeOf(caller))?.deleted === 0,
  );
  session.delaying = [...session.delaying, ...held.map(({ setup }) => setup.name)];
}

/** The delay is over: its lease expires, with the keys that are left of a crash. */
function endDelay(world: World, session: Session): void {
  tell(world, `${session.label}'s delay is over`);
  session.delaying = [];
  world.leases = world.leases.map((alive, id) => alive && id !== session.delayLease);
  if (!world.keys.some((key) => key.deleted === 0 && key.lease === session.delayLease)) return;
  deleteKeys(world, (key) => key.lease === session.delayLease, "its lease");
  world.revision++;
}

/** What happens to a session without a user or an accident. */
export function sessionSteps(world: World, { id, client }: Session): Step[] {
  const session = (w: World): Session => w.sessions[id]!;
  const { lease, delayLease } = session(world);
  const alive = world.leases[lease];
  const steps = delayLease > 0 && !alive && world.leases[delayLease];
  if (steps) return [progress("delay over", (w) => endDelay(w, session(w))), ...endSteps(world, id, client)];
  return endSteps(world, id, client);
}

function endSteps(world: World, id: number, client: Session["client"]): Step[] {
  const session = (w: World): Session => w.sessions[id]!;
  const { lease, adopts } = session(world);
  const alive = world.leases[lease];
  const isRenewed = world.sessions.some((each) => each.lease === lease && each.client === "running");
  if (client === "not begun") return adopts === undefined ? [] : adoptions(world, session(world));
  if (alive && client !== "running" && isRenewed) return [];
  if (alive && client !== "running") return [progress("run out", (w) => runOut(w, session(w)))];
  if (!alive && client === "paused") return [progress("go on", (w) => goOn(w, session(w)))];
  if (!alive && client === "running") return [progress("hear", (w) => hear(w, session(w)))];
  return client === "running" ? [...sweeps(world, session(world)), ...unclaimed(world, session(world))] : [];
}

function runOut(world: World, session: Session): void {
  tell(world, `${session.label}'s lease runs out: etcd deletes its keys`);
  endLease(world, session, "its lease");
}

/** The first reading of the clocks after a pause ends the session. */
function goOn(world: World, session: Session): void {
  tell(world, `${session.label}'s process goes on`);
  loseSession(world, session);
}

function hear(world: World, session: Session): void {
  tell(world, `${session.label} hears that its lease is gone`);
  loseSession(world, session);
}

/** The watch stream broke: every wait starts again on the other member; only the places are kept. */
export function moveStream(world: World, session: Session): void {
  session.member = session.member === "leading" ? "lagging" : "leading";
  tell(world, `${session.label}'s watches move to the ${session.member} member`);
  for (const caller of callersOf(world, session)) {
    if (keeps(world, "moved-watches-start-again")) startAgain(world, caller);
    else goOnFromNow(world, session, caller);
  }
}

function startAgain(world: World, caller: Caller): void {
  const { state } = caller;
  if ("demand" in state && state.demand) {
    demandMoved(world, caller);
  } else if (state.at === "waiting" && state.predecessor) {
    const turn = { ...state, predecessorWatch: undefined, ownWatch: undefined, beforeWatch: undefined };
    const before = state.beforeWatch && state.predecessor.before;
    const both = state.predecessorWatch?.with !== undefined;
    follow(world, caller, turn, { ...state.predecessor, before }, both);
  } else if (state.at === "waiting" || state.at === "holding") {
    const ownWatch = state.ownWatch && { ...state.ownWatch, createdAt: 0, position: 0 };
    const read = state.read && { ...state.read, linearizable: true, answer: undefined };
    caller.state = { ...state, ownWatch, read };
  }
}

function goOnFromNow(world: World, session: Session, caller: Caller): void {
  const { state } = caller;
  if ("demand" in state && state.demand) return demandMoved(world, caller);
  if (state.at !== "waiting" && state.at !== "holding") return;
  const now = seenBy(world, session);
  const move = <W extends { createdAt: number } | undefined>(watch: W): W =>
    watch && watch.createdAt > 0 ? { ...watch, createdAt: now, position: now } : watch;
  const ownWatch = move(state.ownWatch);
  if (state.at === "holding") caller.state = { ...state, ownWatch };
  else
    caller.state = {
      ...{ ...state, ownWatch, predecessorWatch: move(state.predecessorWatch) },
      beforeWatch: move(state.beforeWatch),
      ...(state.putsWatch && { putsWatch: move(state.putsWatch) }),
    };
}
