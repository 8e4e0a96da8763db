// The verdict on a run: pure functions over its history and etcd's own events, one per invariant.
import type { Run } from "../runner/history.js";
import { abortedCallsLeave } from "./abort-rules.js";
import { queuesAreBounded } from "./bound-rules.js";
import { barrierOpensByRelease } from "./barrier-rules.js";
import { claimsNeverOverlap } from "./claims.js";
import { delayAfterCrash } from "./delay-rules.js";
import { membersMeet } from "./double-barrier-rules.js";
import { endsOnce } from "./ends.js";
import { factsOf, type Finding, type Rule } from "./facts.js";
import { noFalseLoss } from "./false-loss.js";
import { Figures } from "./figures.js";
import { observersAgree, proclaimedOnce } from "./leader-rules.js";
import { eachCallCountsOnce, latchOpensWithItsCounts } from "./latch-rules.js";
import { meetingsEnd } from "./meeting-end-rules.js";
import { grantedIsHeld, signalIsNotLate } from "./held-rules.js";
import { newestWins } from "./newest-rules.js";
import { nothingLeftBehind } from "./leftovers.js";
import { lossIsToldInTime } from "./loss.js";
import { healthyMajorityServes } from "./refusal-rules.js";
import { fencesRise, servedInOrder, serverSawOneHolder } from "./queue-rules.js";
import { bestIsNext } from "./priority-rules.js";
import { permitsAreLimited } from "./permit-rules.js";
import { noLostUpdate, noStaleWrite } from "./register-rules.js";
import { stuckProcessesLoseTheirs } from "./stall-rules.js";
import { allAtOnce } from "./together.js";
import {
  neverFreeBetweenOwners,
  shardsSettle,
  viewsAreTrue,
  workIsAwaited,
  worksOneByOne,
} from "./shard-rules.js";
import { answersAreKept, marksEnd, runsOnce } from "./result-rules.js";
import { keptPlaceLeavesWhenWanted } from "./sticky-rules.js";
import { holderIsToldOfWaiters } from "./wanted-rules.js";
import { noLostWakeUp } from "./waking.js";

const noCrash: Rule = ({ steps }) =>
  steps.crashes.map(({ p, event, err }) => ({ text: `${p} ${event}: ${err}` }));

const RULES = {
  ...{ I1: claimsNeverOverlap, I2: serverSawOneHolder, I3: fencesRise, I4: noStaleWrite, I5: noLostUpdate },
  ...{ I6: servedInOrder, I7: noLostWakeUp, I8: nothingLeftBehind, I9: lossIsToldInTime, I10: endsOnce },
  ...{
    I11: noFalseLoss,
    I12: abortedCallsLeave,
    I13: permitsAreLimited,
    I14: allAtOnce,
    ...{ I15: observersAgree, I16: proclaimedOnce, I17: healthyMajorityServes },
    I18: stuckProcessesLoseTheirs,
    I19: delayAfterCrash,
    ...{ I20: grantedIsHeld, I21: signalIsNotLate, I22: holderIsToldOfWaiters },
    I23: keptPlaceLeavesWhenWanted,
    ...{
      I24: worksOneByOne,
      I25: workIsAwaited,
      I26: neverFreeBetweenOwners,
      I27: shardsSettle,
      I28: viewsAreTrue,
    },
    ...{ I29: answersAreKept, I30: runsOnce, I31: marksEnd },
    I32: queuesAreBounded,
    I33: newestWins,
    ...{ I34: latchOpensWithItsCounts, I35: eachCallCountsOnce, I36: barrierOpensByRelease },
    ...{ I37: membersMeet, I38: meetingsEnd },
    I39: bestIsNext,
    crash: noCrash,
  },
} satisfies Record<string, Rule>;
export type Label = keyof typeof RULES;
export const LABELS = Object.keys(RULES) as readonly Label[];

export interface Verdict {
  /** One sentence per violation, per broken invariant. */
  readonly violations: Readonly<Record<string, readonly string[]>>;
  /** What would be a violation without a cause that the client cannot prevent: reported, but not judged. */
  readonly soft: readonly string[];
  /** Computed when it is read first. */
  readonly figures: Figures;
}

/** `labels`: the invariants that apply; default: all. */
export function judge(run: Run, labels: readonly Label[] = LABELS): Verdict {
  const facts = factsOf(run);
  const found: (readonly [Label, Finding])[] = [];
  for (const label of labels) for (const finding of RULES[label](facts)) found.push([label, finding]);
  const violations: Record<string, string[]> = {};
  const soft: string[] = [];
  for (const [label, { text, excuse }] of found) {
    if (excuse === undefined) (violations[label] ??= []).push(text);
    else soft.push(`${label}: ${text} (${excuse})`);
  }
  return new LazyVerdict({ violations, soft }, () => new Figures(facts, found));
}

class LazyVerdict implements Verdict {
  readonly violations: Verdict["violations"];
  readonly soft: Verdict["soft"];
  readonly #compute: () => Figures;
  #figures: Figures | undefined;

  constructor({ violations, soft }: Pick<Verdict, "violations" | "soft">, compute: () => Figures) {
    this.violations = violations;
    this.soft = soft;
    this.#compute = compute;
  }

  get figures(): Figures {
    return (this.#figures ??= this.#compute());
  }
}
