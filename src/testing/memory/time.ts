// The time of an etcd in a process of users, and of the clusters that are connected to it.
// - What is due within less than a millisecond is an instant: it happens by itself, without a move of the time, in turns of the
//   event loop. So a request is answered while virtual time stands still.
// - Nothing here uses a function that the fake timers of a test runner replace, except the real time's clock: it stands still
//   with that of the library.
// - Events run in the context of no caller.
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { type Clock, systemClock, type Timer } from "../../base/util/clock.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { EventQueue, type Scheduler } from "./event-queue.js";
import type { Random } from "./random.js";

/** A millisecond but for what floating-point numbers lose. */
const INSTANT_MS = 0.999;

/** Turns of the event loop, beside its timers. */
class Turns {
  readonly #waiting: (() => void)[] = [];
  #ports: readonly [MessagePort, MessagePort] | undefined;
  #side: 0 | 1 = 0;
  /** Etcds that run. Without them no port stays open: it would keep all that Jest has loaded for a test file. */
  #users = 0;

  use(): void {
    this.#users++;
  }

  release(): void {
    this.#users--;
    this.#rest();
  }

  /**
   * Runs `run` in a turn of its own, after those that wait already. Messages go to and fro: the event loop reads its sockets at the
   * latest after the second one.
   */
  next(run: () => void): void {
    const ports = (this.#ports ??= inOwnContext(() => this.#open()));
    if (this.#waiting.push(run) === 1) for (const port of ports) port.ref();
    this.#side = this.#side === 0 ? 1 : 0;
    ports[this.#side].postMessage(0);
  }

  #open(): readonly [MessagePort, MessagePort] {
    const { port1, port2 } = new MessageChannel();
    for (const port of [port1, port2]) port.on("message", () => this.#run());
    return [port1, port2];
  }

  #run(): void {
    try {
      this.#waiting[0]?.();
    } finally {
      this.#waiting.shift();
      this.#rest();
    }
  }

  #rest(): void {
    if (this.#waiting.length > 0 || this.#ports === undefined) return;
    for (const port of this.#ports)
      if (this.#users > 0) port.unref();
      else port.close();
    if (this.#users === 0) this.#ports = undefined;
  }
}

const turns = new Turns();

/** What takes no time: events in an order, each in a turn of its own. */
class Instants {
  readonly #events = new EventQueue();
  /** The place of the last one. */
  place = 0;
  running = false;

  constructor() {
    turns.use();
  }

  add(place: number, run: () => void): Timer {
    const event = this.#events.add(place, run);
    if (!this.running) this.#turn();
    return event;
  }

  /** Resolves when none is left, and what the last one has caused in the caller's code has had two turns of the event loop. */
  async settled(): Promise<void> {
    for (let quiet = 0; quiet < 2; quiet = this.running ? 0 : quiet + 1)
      await new Promise<void>((resolve) => turns.next(resolve));
  }

  #turn(): void {
    this.running = true;
    turns.next(() => {
      const event = this.#events.peek();
      try {
        if (event === undefined) return;
        this.place = event.time;
        this.#events.take(event)();
      } finally {
        this.running = this.#events.live > 0;
        if (this.running) this.#turn();
      }
    });
  }
}

/** The time of one etcd. */
export interface EtcdTime extends Scheduler {
  /** Of the clusters that are connected to it. */
  readonly clock: Clock;
  /** Whether `is()` becomes true within so long: virtual time moves until then. Rejects with the reason of `over`. */
  until(is: () => boolean | Promise<boolean>, limitMs: number, over: AbortSignal): Promise<boolean>;
  /** Resolves when so much time has passed. Rejects with the reason of `over`. */
  advance(ms: number, over: AbortSignal): Promise<void>;
  /** From now on until the returned function is called, the time moves by itself. */
  run(): () => void;
  /** The end: no timer is left that could run. */
  stop(): void;
}

const POLL_MS = 5;

/** The time of the process. Its events do not keep the process alive, and a call that waits does. */
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
      await new Promise<void>((resolve) => systemClock.after(POLL_MS, resolve));
    }
    return true;
  }

  async advance(ms: number, over: AbortSignal): Promise<void> {
    await this.until(() => false, ms, over);
  }

  run(): () => void {
    return () => {};
  }

  stop(): void {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
    turns.release();
  }
}

/** Time that stands still until somebody moves it. */
export class VirtualTime implements EtcdTime {
  readonly clock: Clock;
  now = 0;
  readonly #instants = new Instants();
  readonly #events = new EventQueue();
  /** The ends of calls of `advance`, by their time: two of them would wait for each other. */
  readonly #ends = new Map<number, Promise<void>>();
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
      pace: (_delayMs, run) => this.after(0, run),
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

  /** Calls that overlap share the time, as those who sleep do. */
  async advance(ms: number, over: AbortSignal): Promise<void> {
    const reached = this.#reached(this.now + ms);
    const rest = this.run();
    let stop = (): void => {};
    const stopped = new Promise<void>((resolve) => (stop = resolve));
    over.addEventListener("abort", stop);
    await Promise.race([reached, stopped]);
    over.removeEventListener("abort", stop);
    rest();
    over.throwIfAborted();
  }

  /** `is` may itself wait for a time. */
  async until(is: () => boolean | Promise<boolean>, limitMs: number, over: AbortSignal): Promise<boolean> {
    let isLate = false;
    const late = this.#events.add(this.now + limitMs, () => (isLate = true));
    try {
      await this.#next(() => this.#instants.settled());
      for (;;) {
        over.throwIfAborted();
        if (await is()) return true;
        if (isLate) return false;
        await this.#next(() => this.#step());
      }
    } finally {
      late.cancel();
    }
  }

  run(): () => void {
    let runs = true;
    this.#runners++;
    void this.#runByItself();
    return () => {
      if (runs) this.#runners--;
      runs = false;
    };
  }

  /** Who waits for it waits for ever, as in front of an etcd that is gone. */
  stop(): void {
    turns.release();
  }

  async #runByItself(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    try {
      await this.#next(() => this.#instants.settled());
      while (this.#runners > 0) {
        const moved = await this.#next(() => this.#step());
        // What came meanwhile has found it running.
        if (!moved && this.#events.peek() === undefined) break;
      }
    } finally {
      this.#running = false;
    }
  }

  #next<T>(move: () => Promise<T>): Promise<T> {
    const moved = this.#moved.then(move);
    this.#moved = moved.then(
      () => {},
      () => {},
    );
    return moved;
  }

  /** After all that is due until then, and what that causes for the same time. */
  #reached(time: number): Promise<void> {
    const known = this.#ends.get(time);
    if (known) return known;
    const reached = new Promise<void>((resolve) => {
      const end = (): void => {
        if ((this.#events.peek()?.time ?? Infinity) <= time) return void this.#events.add(time, end);
        this.#ends.delete(time);
        resolve();
      };
      this.#events.add(time, end);
    });
    this.#ends.set(time, reached);
    return reached;
  }

  /** Moves to the next event and runs it. Then what follows from it in the caller's code comes first. */
  async #step(): Promise<boolean> {
    if (this.#instants.running) await this.#instants.settled();
    const event = this.#events.peek();
    if (event === undefined) return false;
    this.now = event.time;
    const run = this.#events.take(event);
    // In a turn of its own: what it throws is an uncaught exception, as with a timer, and the time goes on.
    await new Promise<void>((resolve) => turns.next(() => (resolve(), run())));
    await this.#instants.settled();
    return true;
  }
}
