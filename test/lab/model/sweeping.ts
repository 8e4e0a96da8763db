import { isAdopted } from "./adopting.js";
import { deleteKeys } from "./etcd.js";
import { progress, type Step } from "./step.js";
import { keeps, sessionOf, tell, type Caller, type Key, type Session, type World } from "./world.js";

/**
 * A session lists all keys of its lease from time to time. A key that is not a place is deleted, guarded by the create
 * revision that was seen: this is one step here, because the delete can affect no other key. A doubt also ends: its
 * keys are given to new places.
 */
export function sweeps(world: World, session: Session): Step[] {
  return [...doubtEnds(world, session), ...strays(world, session)];
}

/** After some time, in which lists have shown that nothing is there. Requests may still be in transit. */
function doubtEnds(world: World, { id, doubted }: Session): Step[] {
  const there = world.keys.some(
    ({ key, delays, deleted }) => deleted === 0 && doubted.includes(delays ?? key),
  );
  if (there || doubted.length === 0) return [];
  const end = (w: World): void => {
    const session = w.sessions[id]!;
    tell(w, `${session.label} may use its keys in doubt again`);
    session.doubted = [];
  };
  return [progress("doubt ends", end)];
}

function strays(world: World, session: Session): Step[] {
  if (!keeps(world, "late-keys-are-swept")) return [];
  if (!session.sweeps && !listsAlways(world)) return [];
  const leases = [session.lease, ...(session.delayLease ? [session.delayLease] : [])];
  return world.keys
    .filter((key) => key.deleted === 0 && leases.includes(key.lease))
    .filter((key) => !isOurs(world, key) && !isAdopted(session, key))
    .map((key) => ({ ...progress("sweep", (w) => sweep(w, session, key)), on: key.key }));
}

/** As long as no proxy repeats requests, every promise holds without it. */
const listsAlways = (world: World): boolean =>
  world.scenario.accidents.repeats > 0 && keeps(world, "answered-puts-are-swept-for");

/** For a while the key is given to no other place; from now on the session looks for keys that are not places. */
export function doubt(world: World, caller: Caller, key: string): void {
  const session = sessionOf(world, caller);
  session.sweeps = true;
  if (!session.doubted.includes(key)) session.doubted = [...session.doubted, key];
}

function sweep(world: World, session: Session, key: Key): void {
  tell(world, `${session.label} sweeps ${key.key}, which is no place of it`);
  deleteKeys(world, (other) => other === key, "its owner");
  world.revision++;
}

/** Before the create revision of a place is known, its value identifies it. */
export const isOurs = (world: World, { key, value, created, delays }: Key): boolean =>
  world.callers.some(({ place }) => {
    if (place?.key !== (delays ?? key)) return false;
    return place.revision === 0 ? place.value === value : place.revision === created;
  });
