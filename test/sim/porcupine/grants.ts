import type { Hold } from "../../lab/checker/calls.js";
import type { Facts } from "../../lab/checker/facts.js";
import type { Place } from "../../lab/checker/places.js";
import type { Times } from "./times.js";

/** A call that was granted, and what etcd shows of it. */
export interface Grant {
  readonly hold: Hold;
  /** How many permits of a weighted semaphore it asked for; undefined for all other calls. */
  readonly weight: number | undefined;
  /** One of several names that were acquired together. */
  readonly together: boolean;
  /** etcd had the key that it names. */
  readonly placed: boolean;
  /** By the rules of the lab, it may not have held the lock at all. */
  readonly excused: boolean;
  /** When etcd deleted the key; undefined if it did not. */
  readonly deleted: { readonly from: number; readonly to: number } | undefined;
  /** When etcd made the writer a reader; undefined if it did not. */
  readonly downgraded: { readonly from: number; readonly to: number } | undefined;
}

export function grantsOf(facts: Facts, { deletion, downgrade }: Times): Grant[] {
  return facts.calls.flatMap(({ hold, names, weight, outcome }) => {
    if (hold === undefined) return [];
    const place = placeOf(facts, hold, outcome?.key);
    const deleted = place && deletion(place);
    const downgraded = place && downgrade(place);
    const more = {
      placed: place !== undefined,
      excused: neverHeld(facts, hold),
      deleted,
      downgraded,
      weight,
    };
    return [{ hold, together: names.length > 0, ...more }];
  });
}

/** The key that the hold names, even if its fence is not the revision at which that key was created. */
function placeOf({ placeOf, places }: Facts, hold: Hold, named: string | undefined): Place | undefined {
  const queue = places.get(hold.lock) ?? [];
  return placeOf.get(hold) ?? queue.findLast(({ key, seen }) => key === named && seen <= hold.granted);
}

/**
 * Its place was gone before its turn, and the process knew, or a fault had taken the place and the process could not know yet:
 * the lab's rule I2 excuses the same.
 */
function neverHeld({ placeOf, early }: Facts, hold: Hold): boolean {
  const place = placeOf.get(hold);
  if (place === undefined || place.headSince !== undefined) return false;
  const taking = early.get(hold);
  return !hold.heldWhenGranted || (taking !== undefined && hold.granted <= taking.until);
}
