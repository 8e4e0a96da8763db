import type { Call } from "./calls.js";
import { nameOf, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import { ByPlace, type GrowingPlace, type Place } from "./places.js";
import { later } from "./spans.js";

/**
 * Places that one transaction has put for a call that requests several names at once. None of them holds before all
 * may: their turn is that of the last one.
 */
export function togetherOf(
  places: ReadonlyMap<string, readonly GrowingPlace[]>,
  calls: readonly Call[],
): ByPlace<readonly Place[]> {
  const wanted = new Map<string, ReadonlySet<string>>();
  for (const { owner, names } of calls)
    if (names.length > 0) wanted.set(`${owner} ${[...names].sort().join()}`, new Set(names));
  const found = new ByPlace<readonly Place[]>();
  if (wanted.size === 0) return found;
  const byOwner = grouped(wanted, ([of]) => of.slice(0, of.indexOf(" ")));
  const all = [...places.values()].flat();
  for (const made of grouped(all, ({ owner, create }) => `${owner} ${create}`).values())
    for (const [, names] of byOwner.get(made[0]?.owner ?? "") ?? []) {
      const group = made.filter(({ lock }) => names.has(lock));
      if (group.length < names.size) continue;
      turnTogether(group);
      for (const place of group) found.set(place, group);
    }
  return found;
}

function turnTogether(group: readonly GrowingPlace[]): void {
  const turns = group.map(({ headSince, headSeen }) => ({ headSince, headSeen }));
  const last = turns.reduce((a, b) =>
    a.headSince === undefined || b.headSince === undefined
      ? { headSince: undefined, headSeen: undefined }
      : { headSince: later(a.headSince, b.headSince), headSeen: later(a.headSeen ?? 0n, b.headSeen ?? 0n) },
  );
  const ends = group.flatMap(({ deleted }) => deleted ?? []);
  const before = last.headSince !== undefined && ends.some((end) => end <= (last.headSince ?? 0n));
  for (const place of group) {
    place.headSince = before ? undefined : last.headSince;
    place.headSeen = before ? undefined : last.headSeen;
  }
}

/** I14: several names are granted at once only if places under all of them were created at one revision. */
export const allAtOnce: Rule = ({ calls, together }) =>
  calls.flatMap(({ hold, names }) =>
    hold === undefined || names.length === 0 || together.has(hold)
      ? []
      : [{ text: `${nameOf(hold)} was granted without places of its revision under ${names.join(", ")}` }],
  );
