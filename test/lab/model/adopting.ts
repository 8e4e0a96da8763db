// What a session does that takes over the lease of a process that is gone: each of its callers takes over a key that the lease has. A request
// of the process before may still arrive. A writer's key is put again, unchanged: a put that would make it a reader's compares what it was.
import { forgetDowngrade } from "./downgrading.js";
import { hold } from "./holding.js";
import { gone, leave } from "./leaving.js";
import { accident, progress, type Step } from "./step.js";
import { deleteKeys } from "./etcd.js";
import { doubt } from "./sweeping.js";
import { wait } from "./waiting.js";
import {
  keeps,
  placeOf,
  sessionOf,
  tell,
  type Answer,
  type Caller,
  type Key,
  type Session,
  type Txn,
  type World,
} from "./world.js";

/** The process of a session ends while it holds, and another one adopts its lease. */
export function adoptions(world: World, { id, adopts }: Session): Step[] {
  const before = world.sessions[adopts ?? id]!;
  const holds = world.callers.some(
    ({ setup, state }) => setup.session === before.id && state.at === "holding",
  );
  if (before.id === id || before.client !== "running" || !holds || !world.leases[before.lease]) return [];
  return accident(world, "adoptions", (w) => adopt(w, w.sessions[before.id]!, w.sessions[id]!));
}

function adopt(world: World, before: Session, session: Session): void {
  tell(world, `${before.label}'s process ends, and ${session.label} adopts its lease`);
  for (const caller of world.callers.filter(({ setup }) => setup.session === before.id)) {
    forgetDowngrade(world, caller);
    caller.state = { at: "done" };
    caller.place = undefined;
  }
  before.client = "over";
  session.client = "running";
  const found = world.keys.filter(({ lease, deleted }) => lease === before.lease && deleted === 0);
  session.adopted = found.filter(({ downgraded }) => !downgraded);
  session.sweeps = true;
}

/** What nobody has claimed for a while is deleted. */
export function unclaimed(_world: World, { id, adopted }: Session): Step[] {
  if (adopted.length === 0) return [];
  const end = (w: World): void => {
    const session = w.sessions[id]!;
    tell(w, `${session.label} deletes what nobody has taken over`);
    deleteKeys(w, (key) => isAdopted(session, key), "its owner");
    w.revision++;
    session.adopted = [];
  };
  return [progress("sweep", end)];
}

export const isAdopted = ({ adopted }: Session, { key, created }: Key): boolean =>
  adopted.some((each) => each.key === key && each.created === created);

/** Its session has adopted a key that it can have. */
export function takesOver(world: World, caller: Caller): boolean {
  const session = sessionOf(world, caller);
  const [found, ...rest] = session.adopted;
  if (!found) return false;
  session.adopted = rest;
  const { key, value, created: revision } = found;
  caller.places++;
  caller.place = { key, value, revision, unanswered: 0, turn: 1, adopted: true };
  tell(world, `${caller.label} takes over ${key}`);
  if (caller.setup.downgrades && keeps(world, "taken-over-by-a-put")) putAgain(world, caller);
  else wait(world, caller, undefined);
  return true;
}

function putAgain(world: World, caller: Caller): void {
  const { key, value, revision: created } = placeOf(caller);
  const { lease } = sessionOf(world, caller);
  const txn: Txn = { is: "take over", name: caller.setup.name, key, value, lease, created, asks: true };
  caller.state = { at: "joining", call: { txn, answer: undefined } };
  tell(world, `it puts it again`);
}

/** If it is a reader's by now, others may read beside: it is deleted, and the caller joins anew, behind them. */
export function takeOverAnswered(world: World, caller: Caller, answer: Answer): void {
  if (caller.gaveUp) return leave(world, caller, { releases: false });
  if (!answer.done) {
    tell(world, `${placeOf(caller).key} is not what it was: ${caller.label} will join anew`);
    doubt(world, caller, placeOf(caller).key);
    return gone(world, caller, undefined, { at: "again" });
  }
  caller.place = { ...placeOf(caller), modified: answer.revision };
  const { position } = answer;
  if (position?.mine && !position.predecessor) hold(world, caller, answer.revision);
  else wait(world, caller, position?.predecessor);
}

export function takeOverUnanswered(world: World, caller: Caller, txn: Txn): void {
  caller.state = { at: "joining", call: { txn, answer: undefined } };
  tell(world, `${caller.label} sends its put again`);
}
