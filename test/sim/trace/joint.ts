import { leave } from "../../lab/model/leaving.js";
import { copy } from "../../lab/model/search.js";
import type { World } from "../../lab/model/world.js";
import type { Change } from "../etcd/store.js";
import { answered, type Answered, type JoinRequest } from "./places.js";
import { Rejected } from "./rejected.js";
import { asOf, end, isOver, takeAsOf } from "./world-of.js";

/** Keys that `lockAll()` puts in one transaction: all of them, or none. */
type Joint = readonly JoinRequest[];

const idOf = ({ key, value }: { readonly key: string; readonly value: string }): string => `${key} ${value}`;

/** The transactions of several names. Each is a step in the queue of each of its names, with one outcome. */
export class Joints {
  /** By key and value of each part. */
  readonly #of = new Map<string, Joint>();

  /** By key and create revision of each part. */
  readonly #places = new Map<string, Joint>();

  sent(what: string, parts: Joint): void {
    for (const part of parts) {
      const known = this.#of.get(idOf(part)) ?? parts;
      const same =
        known.length === parts.length && known.every((other, i) => idOf(other) === idOf(parts[i]!));
      if (!same)
        throw new Rejected(`${what}: it belongs to a joint transaction of ${known.length} names`, []);
      if (parts.length > 1) this.#of.set(idOf(part), known);
    }
  }

  /** The places of several names that were created together; undefined if the place is one of its own. */
  at({ key, revision }: { readonly key: string; readonly revision: number }): Joint | undefined {
    return this.#places.get(`${key} ${revision}`);
  }

  /** What etcd puts in one revision. */
  put({ revision, events }: Change): void {
    const puts = events.flatMap(({ kind, kv }) =>
      kind === "PUT" ? [{ key: kv.key.toString(), value: kv.value }] : [],
    );
    const ids = new Set(puts.map(idOf));
    for (const put of puts) {
      const joint = this.#of.get(idOf(put));
      if (joint) this.#places.set(`${put.key} ${revision}`, joint);
      const missing = joint?.find((part) => !ids.has(idOf(part)));
      if (missing)
        throw new Rejected(
          `etcd puts ${put.key} at revision ${revision} without ${missing.key}: ${WHOLE}`,
          [],
        );
    }
  }
}

const WHOLE = "one transaction puts both, or none";

/**
 * What a refused joint transaction means for each of its keys. confirmed: an earlier attempt has put all of them. joins: the try
 * was refused. undone: keys of others are there, so the client deletes those of its own.
 */
export type Verdict = "confirmed" | "joins" | "undone";

export function verdictOf(
  parts: Joint,
  owns: readonly Answered["own"][],
  values: readonly number[],
): Verdict {
  const created = owns[0]?.created;
  const confirmed = owns.every((own, i) => own?.created === created && own?.value === values[i]);
  if (created !== undefined && confirmed) return "confirmed";
  return parts[0]!.is === "try" ? "joins" : "undone";
}

/** Whether the condition of one name, alone, is a reason for the refusal. */
export const refusesAt = (world: World, id: number, revision: number): boolean =>
  isOver(world) || takeAsOf(world, revision, ["arrives", id]).length > 0;

/** A joint transaction is refused in each name if the condition of one name does not hold. */
export function jointRefused(world: World, id: number, shown: Answered, verdict: Verdict): World[] {
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
