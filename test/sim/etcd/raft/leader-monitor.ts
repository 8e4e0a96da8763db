import type { Timer } from "../../../../src/util/clock.js";
import type { Scheduler } from "../../kernel/kernel.js";
import { ELECTION_MS } from "./raft-node.js";

/** maxNoLeaderCnt. */
const MOST_WITHOUT_LEADER = 3;

/**
 * Ends the streams that require a leader (monitorLeader in api/v3rpc/interceptor.go): it checks once per election timeout, and
 * the third time in a row without a leader is too much.
 */
export class LeaderMonitor {
  readonly #streams = new Set<() => void>();
  /** When it checks, modulo its interval. */
  readonly #phase: number;
  #timer: Timer | undefined;
  #count = 0;

  constructor(
    private readonly scheduler: Scheduler,
    phase: number,
    private readonly hasLeader: () => boolean,
  ) {
    this.#phase = scheduler.now + phase * ELECTION_MS;
  }

  /** Returns what forgets the stream. */
  add(end: () => void): () => void {
    this.#streams.add(end);
    return () => void this.#streams.delete(end);
  }

  /** Checks only without a leader: a check with one has no effect. */
  leadChanged(): void {
    if (this.#timer === undefined && !this.hasLeader()) this.#checkLater();
  }

  /** The timers of the process are gone. */
  killed(): void {
    this.#timer = undefined;
    this.#count = 0;
    this.#streams.clear();
  }

  #checkLater(): void {
    const { now } = this.scheduler;
    const turns = Math.floor((now - this.#phase) / ELECTION_MS + 1e-6) + 1;
    this.#timer = this.scheduler.after(this.#phase + turns * ELECTION_MS - now, () => this.#check());
  }

  #check(): void {
    this.#timer = undefined;
    this.#count = this.hasLeader() ? 0 : this.#count + 1;
    if (this.#count === 0) return;
    if (this.#count >= MOST_WITHOUT_LEADER)
      for (const end of [...this.#streams]) {
        this.#streams.delete(end);
        end();
      }
    this.#checkLater();
  }
}
