import { deleteKeys } from "./etcd.js";
import { progress, type Step } from "./step.js";
import { keeps, tell, type Key, type Session, type World } from "./world.js";

/**
 * While a session has keys in doubt it looks at all its keys, by a watch and by slow reads. What is no place of its own
 * is deleted, guarded by the create revision that was seen: one step here, since that can hit nothing else.
 */
export function sweeps(world: World, session: Session): Step[] {
  if (session.doubted.length === 0 || !keeps(world, "late-keys-are-swept")) return [];
  const lease = session.lease;
  return world.keys
    .filter((key) => key.deleted === 0 && key.lease === lease && !isOurs(world, key))
    .map((key) => progress((w) => sweep(w, session, key)));
}

function sweep(world: World, session: Session, key: Key): void {
  tell(world, `${session.label} sweeps ${key.key}, which is no place of it`);
  deleteKeys(world, (other) => other === key, "its owner");
  world.revision++;
}

/** Before the create revision of a place is known, its value tells. */
export const isOurs = (world: World, { key, value, created }: Key): boolean =>
  world.callers.some(({ place }) => {
    if (place?.key !== key) return false;
    return place.revision === 0 ? place.value === value : place.revision === created;
  });
