// The time of an etcd in a process of users, and of the clusters that are connected to it.
// - What is due within less than a millisecond is an instant: it happens by itself, without a move of the time, in turns of the
//   event loop. So a request is answered while virtual time stands still.
// - Nothing here uses a function that the fake timers of a test runner replace, except the real time's clock: it stands still
//   with that of the library.
// - Events run in the context of no caller.
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { type Clock, systemClock, type Timer } from "../util/clock.js";
import { inOwnContext } from "../util/own-context.js";
import { EventQueue, type Scheduler } from "./event-queue.js";
import type { Random } from "./random.js";

const INSTANT_MS = 1;

/** Turns of the event loop, beside its timers. */
class Turns {
  readonly #waiting: (() => void)[] = [];
  readonly #ports: readonly [MessagePort, MessagePort];
  #side: 0 | 1 = 0;

  constructor() {
    const { port1, port2 } = new MessageChannel();
    this.#ports = [port1, port2];
    for (const port of this.#ports) port.on("message", () => this.#run()).unref();
  }

  /**
   * Runs `run` in a turn of its own, after those that wait already. Messages go to and fro: the event loop reads its sockets at the
   * latest after the second one.
   */
  next(run: () => void): void {
    if (this.#waiting.push(run) === 1) for (const port of this.#ports) port.ref();
    this.#side = this.#side === 0 ? 1 : 0;
    this.#ports[this.#side].postMessage(0);
  }

  #run(): void {
    const run = this.#waiting.shift();
    if (this.#waiting.length === 0) for (const port of this.#ports) port.unref();
    run?.();
  }
}

/** Made when it is needed first: what only imports this file gets no ports. */
let turns: Turns | undefined;

/** What takes no time: events in an order, each in a turn of its own. */
class Instants {
  readonly #events = new EventQueue();
  /** The place of the last one. */
  place = 0;
  running = false;

  add(place: number, run: () => void): Timer {
    const event = this.#events.add(place, run);
    if (!this.running) this.#turn();
    return event;
  }

  /** Resolves when none is left, and what the last one has caused in the caller's code has had two turns of the event loop. */
  async settled(): Promise<void> {
    for (let quiet = 0; quiet < 2; quiet = this.running ? 0 : quiet + 1)
      await new Promise<void>((resolve) => this.#next(resolve));
  }

  #next(run: () => void): void {
    turns ??= inOwnContext(() => new Turns());
    turns.next(run);
  }

  #turn(): void {
    this.running = true;
    this.#next(() => {
      const event = this.#events.peek();
      if (event !== undefined) {
        this.place = event.time;
        this.#events.take(event)();
      }
      this.running = this.#events.live > 0;
      if (this.running) this.#turn();
    });
  }
}

/** The time of one etcd. */
export interface EtcdTime extends Scheduler {
  /** Of the clusters that are connected to it. */
  readonly clock: Clock;
  /** Whether `is()` becomes true within so long: virtual time moves until then. Rejects with the reason of `over`. */
  until(is: () => boolean | Promise<boolean>, limitMs: number, over: AbortSignal): Promise<boolean>;
  /** From now on until the returned function is called, the time moves by itself. */
  run(): () => void;
  /** The end: no timer is left that could run. */
  stop(): void;
}

const POLL_MS = 5;

/** The time of the process. Its timers do not keep the process alive. */
export class RealTime implements EtcdTime {
  readonly clock = systemClock;
  readonly #instants = new Instants();
  readonly #timers = new Set<Timer>();

  get now(): number {
    return systemClock.monotonic();
  }

  after(ms: number, run: () => void): Timer {
    return this.at(this.now + ms, run);
  }

  at(time: number, run: () => void): Timer {
    const ms = time - this.now;
    if (ms < INSTANT_MS) return this.#instants.add(time, run);
    const timer = systemClock.after(Math.ceil(ms), () => {
      this.#timers.delete(timer);
      run();
    });
    timer.unref?.();
    this.#timers.add(timer);
    const cancel = (): void => {
      this.#timers.delete(timer);
      timer.cancel();
    };
    return { cancel };
  }

  async until(is: () => boolean | Promise<boolean>, limitMs: number, over: AbortSignal): Promise<boolean> {
    for (const limit = this.now + limitMs; !(await is());) {
      over.throwIfAborted();
      if (this.now >= limit) return false;
      await new Promise<void>((resolve) => this.after(POLL_MS, resolve));
    }
    return true;
  }

  run(): () => void {
    return () => {};
  }

  stop(): void {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }
}

/** Time that stands still until somebody moves it. */
export class VirtualTime implements EtcdTime {
  readonly clock: Clock;
  now = 0;
  readonly #instants = new Instants();
  readonly #events = new EventQueue();
  /** The end of the last move: one after the other. */
  #moved: Promise<void> = Promise.resolve();
  /** How many want it to move by itself. */
  #runners = 0;
  #running = false;

  constructor(random: Random) {
    const start = Date.now();
    const [draws, ids] = [random.fork("random"), random.fork("ids")];
    this.clock = {
      now: () => ({ monotonic: this.now, suspend: this.now }),
      monotonic: () => this.now,
      date: () => new Date(start + this.now),
      after: (delayMs, run) => this.after(delayMs, run),
      afterPendingEvents: (run) => this.after(0, run),
      random: () => draws.next(),
      randomId: () => ids.id(),
    };
  }

  at(time: number, run: () => void): Timer {
    const ms = time - this.now;
    if (ms < INSTANT_MS) return this.#instants.add(this.#instants.place + Math.max(0, ms), run);
    const event = this.#events.add(time, run);
    if (this.#runners > 0) void this.#runByItself();
    return event;
  }

  after(ms: number, run: () => void): Timer {
    return this.at(this.now + ms, run);
  }

  /** Runs all that is due within the next `ms`, in order. Between two events, the caller's promises settle. */
  advance(ms: number): Promise<void> {
    return this.#next(async () => {
      await this.#instants.settled();
      const limit = this.now + ms;
      while (await this.#step(limit));
    });
  }

  /** `is` may itself wait for a time. */
  async until(is: () => boolean | Promise<boolean>, limitMs: number, over: AbortSignal): Promise<boolean> {
    const limit = this.now + limitMs;
    await this.#next(() => this.#instants.settled());
    for (;;) {
      over.throwIfAborted();
      if (await is()) return true;
      if (this.now >= limit) return false;
      await this.#next(() => this.#step(limit));
    }
  }

  run(): () => void {
    this.#runners++;
    void this.#runByItself();
    return () => void this.#runners--;
  }

  /** Who waits for it waits for ever, as in front of an etcd that is gone. */
  stop(): void {}

  async #runByItself(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    while (this.#runners > 0 && (await this.#next(() => this.#step(Infinity))));
    this.#running = false;
  }

  #next<T>(move: () => Promise<T>): Promise<T> {
    const moved = this.#moved.then(move);
    this.#moved = moved.then(
      () => {},
      () => {},
    );
    return moved;
  }

  /** Runs the next event that is due until then; if there is none, moves to that time and returns false. */
  async #step(limit: number): Promise<boolean> {
    if (this.#instants.running) await this.#instants.settled();
    const event = this.#events.peek();
    const isDue = event !== undefined && event.time <= limit;
    if (isDue) {
      this.now = event.time;
      inOwnContext(this.#events.take(event));
      await this.#instants.settled();
    } else if (limit < Infinity) this.now = limit;
    return isDue;
  }
}
