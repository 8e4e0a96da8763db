import type { Timer } from "../../../../src/util/clock.js";
import type { Scheduler } from "../../kernel/kernel.js";
import { LEADER_CHANGED, TIMEOUT } from "../refusals.js";
import type { Refusal } from "../types.js";

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
