import type { Effect, Nemesis, Refusal } from "../runner/history.js";
import { PairMap } from "./pair-map.js";
import { FOREVER, type Span } from "./spans.js";

/** One injected fault, from its start until it was healed. */
export interface Fault extends Span {
  readonly fault: string;
  readonly effect: Effect;
  readonly target: string;
  readonly took: readonly bigint[];
  readonly sparesLeases: boolean;
  readonly endsStreams: boolean;
  readonly refuses: Refusal | undefined;
  readonly suspends: boolean;
  readonly blocks: boolean;
}

/** A fault that was never healed lasts forever. */
export function faultsOf(nemeses: readonly Nemesis[]): Fault[] {
  const faults: Fault[] = [];
  const open = new PairMap<string, string, number[]>();
  for (const step of nemeses) {
    const begun = open.get(step.fault, step.target) ?? [];
    open.set(step.fault, step.target, begun);
    if (step.on) begun.push(faults.push(begin(step)) - 1);
    else for (const n of begun.splice(0)) faults[n] = healed(faults[n] as Fault, step);
  }
  return faults;
}

function begin({ t, fault, effect, target, took = [], ...nemesis }: Nemesis): Fault {
  const { sparesLeases = false, endsStreams = false, refuses, suspends = false, blocks = false } = nemesis;
  return {
    fault,
    effect,
    target,
    took,
    sparesLeases,
    endsStreams,
    refuses,
    suspends,
    blocks,
    from: t,
    to: FOREVER,
  };
}

/** The revisions that it took may be known only when it ends. */
const healed = (fault: Fault, { t, took = [] }: Nemesis): Fault => ({
  ...fault,
  to: t,
  took: [...new Set([...fault.took, ...took])],
});
