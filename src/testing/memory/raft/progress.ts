import type { Timer } from "../../../base/util/clock.js";
import type { Scheduler } from "../event-queue.js";
import { LEADER_CHANGED, type Refusal, TIMEOUT } from "../protocol.js";
import { ELECTION_MS, type Proposal, type RaftNode } from "./raft-node.js";

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
      const { proposal } = node.log.at(this.#applied);
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

/** Five seconds and two election timeouts (ReqTimeout in config/config.go). */
export const REQUEST_TIMEOUT_MS = 7000;
/** readIndexRetryTime. */
const RETRY_MS = 500;

export interface ReadLoopOptions {
  readonly scheduler: Scheduler;
  /** Asks the leader for its commit index; what is lost is never answered. */
  readonly requestIndex: (answer: (index: number) => void) => void;
  /** Calls `run` when the member has applied that entry. */
  readonly whenApplied: (index: number, run: () => void) => void;
  /** A request for the index is repeated (3.5 on). */
  readonly retries: boolean;
}

type Then = (refusal?: Refusal) => void;

/**
 * Linearizable reads of one member (linearizableReadLoop in v3_server.go): one request for the leader's commit index serves all
 * reads that wait when it begins; those that come later wait for the next one, however long this one takes.
 */
export class ReadLoop {
  readonly #options: ReadLoopOptions;
  #waiting: Then[] = [];
  #running: Then[] | undefined;
  /** Of the requests of the running round; none of them while the answer waits to be applied. */
  #round: object | undefined;
  #since = 0;
  #limit: Timer | undefined;
  #retry: Timer | undefined;

  constructor(options: ReadLoopOptions) {
    this.#options = options;
  }

  /** How long the leader has owed its commit index. */
  get waitsMs(): number {
    return this.#round === undefined ? 0 : this.#options.scheduler.now - this.#since;
  }

  add(then: Then): void {
    this.#waiting.push(then);
    this.#next();
  }

  /** The member knows another leader: the round fails, because its request may have been lost. */
  leaderChanged(): void {
    if (this.#round !== undefined) this.#end(LEADER_CHANGED);
  }

  /** The first entry of a term was applied: the leader may have dropped what came before (firstCommitInTerm). */
  again(): void {
    if (this.#round !== undefined && this.#options.retries) this.#request(this.#round);
  }

  killed(): void {
    this.#stop();
    this.#waiting = [];
    this.#running = undefined;
  }

  #next(): void {
    if (this.#running !== undefined || this.#waiting.length === 0) return;
    this.#running = this.#waiting;
    this.#waiting = [];
    const round = (this.#round = {});
    this.#since = this.#options.scheduler.now;
    this.#limit = this.#options.scheduler.after(REQUEST_TIMEOUT_MS, () => this.#end(TIMEOUT));
    this.#request(round);
  }

  #request(round: object): void {
    this.#retry?.cancel();
    this.#options.requestIndex((index) => {
      if (this.#round !== round) return;
      this.#stop();
      // There is no time limit for this.
      this.#options.whenApplied(index, () => this.#end());
    });
    if (this.#round === round && this.#options.retries)
      this.#retry = this.#options.scheduler.after(RETRY_MS, () => this.#request(round));
  }

  #stop(): void {
    this.#round = undefined;
    this.#limit?.cancel();
    this.#retry?.cancel();
  }

  #end(refusal?: Refusal): void {
    this.#stop();
    const running = this.#running ?? [];
    this.#running = undefined;
    for (const then of running) then(refusal);
    this.#next();
  }
}
