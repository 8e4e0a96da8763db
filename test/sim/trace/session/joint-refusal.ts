import { leave } from "../../../lab/model/leaving.js";
import { copy } from "../../../lab/model/search.js";
import type { World } from "../../../lab/model/world.js";
import type { JoinRequest } from "../requests.js";
import { answered, type Answered } from "./places.js";
import { asOf, end, isOver, takeAsOf } from "./world-of.js";

/**
 * What a refused joint transaction means for each of its keys. confirmed: an earlier attempt has put all of them. joins: the try
 * was refused. undone: keys of others are there, so the client deletes those of its own.
 */
export type Verdict = "confirmed" | "joins" | "undone";

export function verdictOf(
  parts: readonly JoinRequest[],
  owns: readonly Answered["own"][],
  values: readonly number[],
): Verdict {
  const created = owns[0]?.created;
  const confirmed = owns.every((own, i) => own?.created === created && own?.value === values[i]);
  if (created !== undefined && confirmed) return "confirmed";
  return parts[0]!.is === "try" ? "joins" : "undone";
}

/** The answer to a joint transaction that was refused, for one of its keys. */
export interface JointRefused extends Answered {
  readonly verdict: Verdict;
}

/** Whether the condition of one name, alone, is a reason for the refusal. */
export const refusesAt = (world: World, id: number, revision: number): boolean =>
  isOver(world) || takeAsOf(world, revision, ["arrives", id]).length > 0;

/** A joint transaction is refused in each name if the condition of one name does not hold. */
export function jointRefused(world: World, id: number, shown: JointRefused): World[] {
  const { verdict } = shown;
  const { state, place } = world.callers[id] ?? {};
  if (isOver(world) || !state || !place) return [world];
  if (!("call" in state) || state.call.answer) return [];
  if (verdict === "confirmed") return answered(world, id, shown);
  const there = asOf(world, shown.revision).keys.find(
    ({ key, deleted }) => key === place.key && deleted === 0,
  );
  if (there?.created !== shown.own?.created || there?.value !== shown.own?.value) return [];
  const next = copy(world);
  const caller = next.callers[id]!;
  const isOurs = verdict === "undone" && there?.value === place.value;
  if (!isOurs) {
    end(caller);
    return [next];
  }
  caller.place = { ...place, revision: there.created };
  leave(next, caller, { releases: false });
  return [next];
}
