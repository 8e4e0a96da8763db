import type { Run, ServerEvent, Setting, Sight, Step } from "../runner/history.js";
import { callsOf, type Call, type Calls, type Hold } from "./calls.js";
import { earlyTakings, lastUseOf, type Early } from "./early.js";
import { groupedByPair, type PairMap } from "./pair-map.js";
import { ByPlace, placesOf, type Place } from "./places.js";
import { togetherOf } from "./together.js";
import { order } from "./spans.js";
import { Steps } from "./steps.js";
import { Troubles } from "./troubles.js";

/** The facts of a run, computed once for all rules. */
export interface Facts extends Calls {
  readonly history: readonly Step[];
  readonly steps: Steps;
  readonly server: readonly ServerEvent[];
  readonly delayKeys: readonly ServerEvent[];
  readonly memberKeys: readonly ServerEvent[];
  readonly marks: readonly ServerEvent[];
  readonly meetingKeys: readonly ServerEvent[];
  readonly sights: readonly Sight[];
  readonly setting: Setting;
  readonly start: bigint;
  readonly end: bigint;
  /** By owner and lock. */
  readonly callsUnder: PairMap<string | undefined, string, readonly Call[]>;
  /** Per lock, in create order. */
  readonly places: ReadonlyMap<string, readonly Place[]>;
  readonly placeOf: ByPlace<Place>;
  /** The last one of the place. */
  readonly holdOf: ByPlace<Hold>;
  readonly firstHoldOf: ByPlace<Hold>;
  /** All places that were created together with it by a call for several names, including itself. */
  readonly together: ByPlace<readonly Place[]>;
  readonly troubles: Troubles;
  /** Per lease: see `lastUseOf()`. */
  readonly lastUse: ReadonlyMap<string, bigint>;
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
  const history = inOrder(run.history, ({ t }) => t);
  const server = inOrder(run.server, ({ rev }) => rev);
  const { setting } = run;
  const steps = new Steps(history);
  const troubles = new Troubles(steps, setting);
  const { calls, callOf, holds } = callsOf(steps);
  const { delayKeys = [], memberKeys = [], marks = [], meetingKeys = [], sights = [] } = run;
  const places = placesOf(server, setting, delayKeys);
  const together = togetherOf(places, calls);
  const all = [...places.values()].flat();
  const holdOf = new ByPlace(holds.map((hold) => [hold, hold]));
  const firstHoldOf = new ByPlace(holds.toReversed().map((hold) => [hold, hold]));
  const placeOf = new ByPlace(all.map((place) => [place, place]));
  const ends = { start: history[0]?.t ?? 0n, end: history.at(-1)?.t ?? 0n };
  const lastUse = lastUseOf(all);
  const early = earlyTakings(all, { setting, troubles, holdOf, together, lastUse });
  const callsUnder = groupedByPair(
    calls,
    ({ owner }) => owner,
    ({ lock }) => lock,
  );
  return {
    ...{ history, steps, server, delayKeys, memberKeys, marks, meetingKeys, sights, setting, ...ends },
    ...{ calls, callOf, callsUnder, holds, places, placeOf, holdOf, firstHoldOf },
    ...{ together, troubles, lastUse, early },
  };
}

/** A copy, because the run may go on. That of a simulated run is usually in order: to compare takes less time than to sort. */
function inOrder<T>(items: readonly T[], keyOf: (item: T) => bigint): readonly T[] {
  let last: bigint | undefined;
  for (const item of items) {
    const key = keyOf(item);
    if (last !== undefined && key < last) return items.toSorted((a, b) => order(keyOf(a), keyOf(b)));
    last = key;
  }
  return [...items];
}

/** How a sentence names a hold. */
export const nameOf = ({ p, id, lock, token, turn }: Hold) =>
  `${p}#${id} (${lock}, fence ${token}${turn > 1 ? `, turn ${turn}` : ""})`;
export const ms = (ns: bigint) => `${(Number(ns) / 1e6).toFixed(1)} ms`;
/** When, counted from the start of the run. */
export const moment = ({ start }: Facts, t: bigint) => ms(t - start);
export const at = (facts: Facts, t: bigint) => `at ${moment(facts, t)}`;
