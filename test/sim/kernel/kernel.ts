import type { Timer } from "../../../src/base/util/clock.js";
import { drainByTick, type Drain } from "./drain.js";
import { EventQueue, type Scheduler } from "../../../src/testing/memory/event-queue.js";
import { LineHash } from "./line-hash.js";
import { Random } from "../../../src/testing/memory/random.js";

export interface KernelOptions {
  /** Gets every line of the log, with its time. */
  readonly print?: ((line: string) => void) | undefined;
  /** For measurements. */
  readonly drain?: Drain;
  /** Called before each event, with its time. What it returns is awaited, and then the next event is looked up again. */
  readonly hold?: Hold | undefined;
}

/** Of a line of the log. */
export type Fields = Readonly<
  Record<string, string | number | bigint | boolean | readonly (string | bigint)[] | undefined>
>;

export type Hold = (time: number) => Promise<void> | undefined;

/** More events at one virtual moment are a loop that time never ends. */
const MOST_AT_ONCE = 1_000_000;
/** So many events run between two turns of the event loop, which signals and a test runner's timeouts need. */
const EVENTS_PER_TURN = 10_000;

/**
 * The event loop of a simulation: events by (virtual time, order of creation), with all microtasks drained after each event. The
 * loop runs in a macrotask, because a checkpoint inside a microtask does nothing.
 */
export class Kernel implements Scheduler {
  /** The root: fork it by purpose. */
  readonly random: Random;
  /** The number of events that have run. */
  events = 0;
  readonly #queue = new EventQueue();
  readonly #hash = new LineHash();
  readonly #print: KernelOptions["print"];
  readonly #drain: Drain;
  readonly #hold: KernelOptions["hold"];
  #now = 0;
  /** Events in a row at this moment. */
  #atOnce = 0;
  #running = false;
  /** Formatting a fraction is slow, and several lines have the same time: the last time, and its text. */
  #printed = NaN;
  #text = "";

  constructor(seed: string | number, { print, drain = drainByTick, hold }: KernelOptions = {}) {
    this.random = new Random(String(seed));
    this.#print = print;
    this.#drain = drain;
    this.#hold = hold;
  }

  get now(): number {
    return this.#now;
  }

  /** Events that are neither run nor cancelled. */
  get pending(): number {
    return this.#queue.live;
  }

  /** Of all lines so far, with their times. */
  get hash(): string {
    return this.#hash.text;
  }

  at(time: number, run: () => void): Timer {
    if (Number.isNaN(time)) throw new RangeError("an event at NaN");
    return this.#queue.add(Math.max(time, this.#now), run);
  }

  after(ms: number, run: () => void): Timer {
    return this.at(this.#now + Math.max(0, ms), run);
  }

  log(line: string): void {
    const dated = `${this.#nowText()} ${line}`;
    this.#hash.add(dated);
    this.#print?.(dated);
  }

  /**
   * Logs the names and values of an object as one line. The line is made only if it is printed: to join its parts, and to read the
   * joined text, takes several times as long as to read the parts.
   */
  logFields(fields: Fields): void {
    if (this.#print !== undefined) return this.log(lineOf(fields));
    const hash = this.#hash;
    hash.addPart(this.#nowText());
    hash.addPart(" ");
    for (const name in fields) {
      const value = fields[name];
      if (value === undefined) continue;
      hash.addPart(name);
      hash.addPart("=");
      hash.addPart(typeof value === "string" ? value : String(value));
      hash.addPart(" ");
    }
    hash.endLine();
  }

  #nowText(): string {
    if (this.#printed !== this.#now) {
      this.#printed = this.#now;
      this.#text = String(this.#now);
    }
    return this.#text;
  }

  /**
   * Runs events until `until()`, no event is left, or `limitMs` of virtual time have passed since the call. Resolves with the last
   * `until()`. Rejects with what an event throws.
   */
  run(until: () => boolean, limitMs: number): Promise<boolean> {
    if (this.#running) return Promise.reject(new Error("the kernel runs already"));
    this.#running = true;
    const limit = this.#now + limitMs;
    const running = new Promise<boolean>((resolve, reject) => {
      const turn = (): void => {
        try {
          const over = this.#runSome(until, limit);
          if (over === true) resolve(until());
          else if (over === false) setImmediate(turn);
          else void over.then(() => setImmediate(turn), reject);
        } catch (error) {
          reject(error);
        }
      };
      setImmediate(turn);
    });
    return running.finally(() => (this.#running = false));
  }

  /** Runs the events of the next `ms`, and moves the time to their end. */
  async elapse(ms: number): Promise<void> {
    let over = false;
    this.after(ms, () => (over = true));
    await this.run(() => over, Infinity);
  }

  /** Returns whether the run is over, or what it waits for. */
  #runSome(until: () => boolean, limit: number): boolean | Promise<void> {
    for (let n = 0; n < EVENTS_PER_TURN; n++) {
      this.#drain();
      if (until()) return true;
      const event = this.#queue.peek();
      if (event === undefined) return true;
      if (event.time > limit) {
        this.#now = limit;
        return true;
      }
      const held = this.#hold?.(event.time);
      if (held !== undefined) return held;
      this.#atOnce = event.time > this.#now ? 0 : this.#atOnce + 1;
      if (this.#atOnce > MOST_AT_ONCE) throw new Error(`virtual time stands still at ${this.#now} ms`);
      this.#now = event.time;
      this.events++;
      this.#queue.take(event)();
    }
    return false;
  }
}

/** `JSON.stringify()` needs a function for each value because of the bigints. */
function lineOf(fields: Fields): string {
  let line = "";
  for (const name in fields) if (fields[name] !== undefined) line += `${name}=${String(fields[name])} `;
  return line;
}
