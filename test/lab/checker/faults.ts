import type { Effect, Nemesis, Refusal, Step } from "../runner/history.js";
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
}

/** A fault that was never healed lasts forever. */
export function faultsOf(history: readonly Step[]): Fault[] {
  const faults: Fault[] = [];
  const open = new Map<string, number[]>();
  for (const step of history) {
    if (step.k !== "nemesis") continue;
    const key = `${step.fault} ${step.target}`;
    const begun = open.get(key) ?? [];
    open.set(key, begun);
    if (step.on) begun.push(faults.push(begin(step)) - 1);
    else for (const n of begun.splice(0)) faults[n] = healed(faults[n] as Fault, step);
  }
  return faults;
}

function begin({ t, fault, effect, target, took = [], ...nemesis }: Nemesis): Fault {
  const { sparesLeases = false, endsStreams = false, refuses, suspends = false } = nemesis;
  return { fault, effect, target, took, sparesLeases, endsStreams, refuses, suspends, from: t, to: FOREVER };
}

/** The revisions that it took may be known only when it ends. */
const healed = (fault: Fault, { t, took = [] }: Nemesis): Fault => ({
  ...fault,
  to: t,
  took: [...new Set([...fault.took, ...took])],
});
