import type { ChangeMessage, FullMessage, PerMinute, Row } from "../protocol.js";

/** The latest rows, and the time of the server. */
export class Store {
  readonly rows = new Map<string, Row>();
  mayRelease = false;
  prefix = "";
  problem: string | null = null;
  /** The time of the last state without a problem, by the clock of the server. */
  goodAt = Date.now();
  hosts: readonly string[] = [];
  handOvers: { readonly perMinute: PerMinute; readonly now: number } = { perMinute: [], now: 0 };
  /** Whether the first state has come. */
  isFilled = false;
  #aheadMs = 0;

  fill(message: FullMessage): void {
    this.rows.clear();
    this.mayRelease = message.release;
    this.prefix = message.prefix;
    this.hosts = message.hosts;
    this.#take(message);
  }

  change(message: ChangeMessage): void {
    for (const name of message.gone) this.rows.delete(name);
    this.#take(message);
  }

  /** Milliseconds since 1970 by the clock of the server, which has set all times. */
  now(): number {
    return Date.now() + this.#aheadMs;
  }

  #take({ now, rows, problem, more, perMinute }: Omit<ChangeMessage, "gone">): void {
    this.isFilled ||= !more;
    this.#aheadMs = now - Date.now();
    if (problem === null || this.problem === null) this.goodAt = now;
    this.problem = problem;
    this.handOvers = { perMinute, now };
    for (const row of rows) this.rows.set(row.name, row);
  }
}
