import type * as history from "../runner/history.js";
import type { Step } from "../runner/history.js";

/** The steps of a history by kind, in its order. Most rules need one kind, which is a small part of the history. */
export class Steps {
  readonly operations: (history.Invoke | history.Outcome)[] = [];
  /** About a call or its hold, `operations` included. */
  readonly onHolds: (history.Invoke | history.Outcome | history.Abort | history.Claim | history.End)[] = [];
  readonly asks: history.Asks[] = [];
  readonly wanted: history.Wanted[] = [];
  readonly works: (history.WorkRun | history.WorkRan | history.Moved)[] = [];
  readonly settled: history.Settled[] = [];
  readonly results: (history.Asked | history.Answered | history.Worked | history.SettledWork)[] = [];
  readonly meetings: (history.Called | history.Returned | history.GaveUp)[] = [];
  readonly viewed: history.Viewed[] = [];
  readonly observations: (history.Observed | history.Unobserved)[] = [];
  readonly stalls: history.Stall[] = [];
  readonly nemeses: history.Nemesis[] = [];
  readonly leftovers: history.Leftovers[] = [];
  readonly crashes: history.Crash[] = [];

  constructor(all: readonly Step[]) {
    for (const step of all) this.#add(step);
  }

  #add(step: Step): void {
    switch (step.k) {
      case "invoke":
      case "ok":
      case "fail":
      case "info":
        this.operations.push(step);
        this.onHolds.push(step);
        break;
      case "abort":
      case "claim":
      case "end":
        this.onHolds.push(step);
        break;
      case "asks":
        this.asks.push(step);
        break;
      case "wanted":
        this.wanted.push(step);
        break;
      case "run":
      case "ran":
      case "moved":
        this.works.push(step);
        break;
      case "asked":
      case "answered":
      case "worked":
      case "settled-work":
        this.results.push(step);
        break;
      case "called":
      case "returned":
      case "gave-up":
        this.meetings.push(step);
        break;
      case "settled":
        this.settled.push(step);
        break;
      case "viewed":
        this.viewed.push(step);
        break;
      case "told":
        break;
      case "observed":
      case "unobserved":
        this.observations.push(step);
        break;
      case "stall":
        this.stalls.push(step);
        break;
      case "nemesis":
        this.nemeses.push(step);
        break;
      case "leftovers":
        this.leftovers.push(step);
        break;
      case "crash":
        this.crashes.push(step);
        break;
      default:
        step satisfies never;
    }
  }
}
