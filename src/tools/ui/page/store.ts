import type { ChangeMessage, FullMessage, Row } from "../protocol.js";

/** Hand-overs by the minute, as a message has them. */
export interface Counts {
  /** Up to the minute of `now`, which is the last one. */
  readonly perMinute: readonly number[];
  readonly now: number;
  /** Since when the server counts. */
  readonly countedSince: number;
}

/** The latest rows, and the time of the server. */
export class Store {
  readonly rows = new Map<string, Row>();
  mayRelease = false;
  prefix = "";
  problem: string | null = null;
  /** When etcd has answered last, by the clock of the server, as far as the last message knew. */
  goodAt = Date.now();
  hosts: readonly string[] = [];
  handOvers: Counts = { perMinute: [], now: 0, countedSince: 0 };
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

  #take(message: Omit<ChangeMessage, "gone">): void {
    const { now, rows, problem, more, perMinute, answeredAt, countedSince } = message;
    this.isFilled ||= !more;
    this.#aheadMs = now - Date.now();
    this.goodAt = answeredAt;
    this.problem = problem;
    this.handOvers = { perMinute, now, countedSince };
    for (const row of rows) this.rows.set(row.name, row);
  }
}
