import type { Timer } from "../../../../src/util/clock.js";
import type { Scheduler } from "../../kernel/kernel.js";
import type { Proposal } from "./log.js";
import { ELECTION_MS, type RaftNode } from "./raft-node.js";

/** applyTimeout. */
const APPLY_TIMEOUT_MS = 1000;

export interface ApplyingOptions {
  readonly node: RaftNode;
  readonly scheduler: Scheduler;
  readonly apply: (proposal: Proposal) => void;
  /** The first entry of a term. */
  readonly firstOfTerm: () => void;
}

/** Applies the committed entries of one member, in order; its applied index may be behind. */
export class Applying {
  /** How much longer entries take to be applied. */
  lagMs = 0;
  readonly #options: ApplyingOptions;
  #applied = 0;
  /** What is applied, or has a timer for it. */
  #scheduled = 0;
  #waits: { readonly index: number; readonly run: () => void }[] = [];

  constructor(options: ApplyingOptions) {
    this.#options = options;
  }

  get applied(): number {
    return this.#applied;
  }

  /** The member knows that more is committed. */
  committed(): void {
    const { node, scheduler } = this.#options;
    const { commit } = node;
    if (commit <= this.#scheduled) return;
    const isImmediate = this.lagMs === 0 && this.#scheduled === this.#applied;
    this.#scheduled = commit;
    if (isImmediate) this.#applyUpTo(commit);
    else scheduler.after(this.lagMs, () => this.#applyUpTo(commit));
  }

  when(index: number, run: () => void): void {
    if (index <= this.#applied) run();
    else this.#waits.push({ index, run });
  }

  /** waitAppliedIndex: what this member knows to be committed, within a second. */
  caughtUp(then: (late: boolean) => void): void {
    const { commit } = this.#options.node;
    if (this.#applied >= commit) return then(false);
    let timer: Timer | undefined;
    const once = (late: boolean): void => {
      if (timer === undefined) return;
      timer.cancel();
      timer = undefined;
      then(late);
    };
    timer = this.#options.scheduler.after(APPLY_TIMEOUT_MS, () => once(true));
    this.when(commit, () => once(false));
  }

  /** What was not applied is in the log, and is applied again after the restart. */
  killed(): void {
    this.#scheduled = this.#applied;
    this.#waits = [];
    this.lagMs = 0;
  }

  #applyUpTo(index: number): void {
    const { node, apply, firstOfTerm } = this.#options;
    while (this.#applied < index) {
      const { proposal } = node.log[this.#applied]!;
      this.#applied++;
      if (proposal === undefined) firstOfTerm();
      else apply(proposal);
    }
    if (this.#waits.length === 0) return;
    const ready = this.#waits.filter((wait) => wait.index <= this.#applied);
    this.#waits = this.#waits.filter((wait) => wait.index > this.#applied);
    for (const { run } of ready) run();
  }
}

/** How much longer than its TTL a lease lasts under a new leader (Promote in lease/lessor.go, server.go). */
export const EXTENSION_MS = ELECTION_MS;
