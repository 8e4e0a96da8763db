import type { Run, ServerEvent, Setting, Step } from "../runner/history.js";
import { callsOf, type Call, type Hold } from "./calls.js";
import { earlyTakings, type Early } from "./early.js";
import { ByPlace, placesOf, type Place } from "./places.js";
import { togetherOf } from "./together.js";
import { order } from "./spans.js";
import { Troubles } from "./troubles.js";

/** The facts of a run, computed once for all rules. */
export interface Facts {
  readonly history: readonly Step[];
  readonly server: readonly ServerEvent[];
  readonly setting: Setting;
  readonly start: bigint;
  readonly end: bigint;
  readonly calls: readonly Call[];
  readonly holds: readonly Hold[];
  /** Per lock, in create order. */
  readonly places: ReadonlyMap<string, readonly Place[]>;
  readonly placeOf: ByPlace<Place>;
  readonly holdOf: ByPlace<Hold>;
  /** All places that were created together with it by a call for several names, including itself. */
  readonly together: ByPlace<readonly Place[]>;
  readonly troubles: Troubles;
  readonly early: ByPlace<Early>;
}

/** A violation; with `excuse`, it is reported but does not fail the run. */
export interface Finding {
  readonly text: string;
  readonly excuse?: string;
  /** The length of the violation. */
  readonly ns?: bigint;
}
export type Rule = (facts: Facts) => Finding[];

export function factsOf(run: Run): Facts {
  const history = run.history.toSorted((a, b) => order(a.t, b.t));
  const server = run.server.toSorted((a, b) => order(a.rev, b.rev));
  const { setting } = run;
  const troubles = new Troubles(history, setting);
  const { calls, holds } = callsOf(history);
  const places = placesOf(server, setting);
  const together = togetherOf(places, calls);
  const all = [...places.values()].flat();
  const holdOf = new ByPlace(holds.map((hold) => [hold, hold]));
  const placeOf = new ByPlace(all.map((place) => [place, place]));
  const ends = { start: history[0]?.t ?? 0n, end: history.at(-1)?.t ?? 0n };
  const early = earlyTakings(all, { setting, troubles, holdOf, together });
  return {
    history,
    server,
    setting,
    ...ends,
    calls,
    holds,
    places,
    placeOf,
    holdOf,
    together,
    troubles,
    early,
  };
}

/** How a sentence names a hold. */
export const nameOf = ({ p, id, lock, token }: Hold) => `${p}#${id} (${lock}, fence ${token})`;
export const ms = (ns: bigint) => `${(Number(ns) / 1e6).toFixed(1)} ms`;
/** When, counted from the start of the run. */
export const moment = ({ start }: Facts, t: bigint) => ms(t - start);
export const at = (facts: Facts, t: bigint) => `at ${moment(facts, t)}`;
