import type { Verdict } from "./checker/judge.js";

/** Sums over several runs. */
export class Tally {
  runs = 0;
  /** Runs that broke an invariant. */
  broken = 0;
  /** Runs that seem to have broken one, but whose machine had too much else to do. */
  starved = 0;
  #handOvers = 0;
  #overlapMs = 0;
  readonly #faults = new Map<string, number>();

  add({ violations, figures }: Verdict, isStarved: boolean): void {
    this.runs++;
    if (Object.keys(violations).length > 0 && isStarved) this.starved++;
    else if (Object.keys(violations).length > 0) this.broken++;
    this.#handOvers += figures.handOvers;
    this.#overlapMs += figures.overlapMs;
    for (const [fault, count] of Object.entries(figures.faults))
      this.#faults.set(fault, (this.#faults.get(fault) ?? 0) + count);
  }

  lines(): string[] {
    const faults = [...this.#faults.values()].reduce((sum, count) => sum + count, 0);
    return [
      `\n${this.runs} runs, ${this.broken} of them broke an invariant, ${this.starved} were starved`,
      `${this.#handOvers} hand-overs, ${faults} faults of ${this.#faults.size} kinds`,
      `claims overlapped for ${this.#overlapMs.toFixed(1)} ms (paused processes and taken keys; the fence closes it)`,
    ];
  }
}
