import type { Clock, Moment, Timer } from "../../../src/base/util/clock.js";
import type { Scheduler } from "../../../src/testing/memory/event-queue.js";
import { Random } from "../../../src/testing/memory/random.js";
import { HeldWork, type Phase } from "./held-work.js";

export interface NodeClockOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** How much faster than the kernel's the clocks run, -0.01 to 0.01. Default: by seed. */
  readonly drift?: number;
  /** What the wall clock is ahead of the kernel's at the start. Default: by seed, up to 10 s to each side. */
  readonly wallOffsetMs?: number;
  /** Default: true. */
  readonly linux?: boolean;
  /** Another thread of the same process: their clocks show the same. */
  readonly like?: NodeClock;
}

const EPOCH = Date.UTC(2031, 4, 5);
/** Longer delays are cut to this one, as `systemClock` does. */
const MAX_DELAY_MS = 2_147_483_647;
/** Node.js reads the clock that includes suspend from /proc/uptime, which has two decimals. */
const UPTIME_STEP_MS = 10;
/** Rounding error when a local time is converted to a kernel time and back. */
const EPSILON_MS = 1e-6;

class NodeTimer implements Timer {
  event: Timer | undefined;
  over = false;
  referenced = true;
  /** Its index in `live`. */
  #index: number;

  constructor(
    readonly due: number,
    readonly run: () => void,
    private readonly live: NodeTimer[],
  ) {
    this.#index = live.push(this) - 1;
  }

  cancel(): void {
    this.end();
    this.event?.cancel();
  }

  unref(): void {
    this.referenced = false;
  }

  end(): void {
    if (this.over) return;
    this.over = true;
    const last = this.live.pop()!;
    if (last === this) return;
    this.live[this.#index] = last;
    last.#index = this.#index;
  }
}

/**
 * The clocks of one simulated process, its timers, and its pauses. Nothing of the process runs while it is paused, and nothing
 * ever again once it is killed.
 */
export class NodeClock implements Clock {
  readonly drift: number;
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #ids: Random;
  readonly #linux: boolean;
  readonly #born: number;
  readonly #startMs: number;
  readonly #bootMs: number;
  readonly #held: HeldWork;
  /** In no order. */
  readonly #timers: NodeTimer[] = [];
  #wallMs: number;
  /** Time in suspend, which the monotonic clock does not count. */
  #asleepMs = 0;
  #suspendedAt: number | undefined;
  readonly #threads: NodeClock[] = [];
  #stopped = false;
  #blocked = false;

  constructor({ scheduler, random, drift, wallOffsetMs, linux = true, like }: NodeClockOptions) {
    const draws = random.fork("clock");
    this.#scheduler = scheduler;
    this.#random = random.fork("random");
    this.#ids = random.fork("ids");
    this.#linux = linux;
    this.#born = scheduler.now;
    this.#startMs = draws.between(20, 2000);
    this.#bootMs = draws.between(1e5, 1e9);
    this.drift = drift ?? draws.between(-0.01, 0.01);
    this.#wallMs = EPOCH + (wallOffsetMs ?? draws.between(-10_000, 10_000));
    this.#held = new HeldWork(scheduler, random.fork("resume"));
    if (like === undefined) return;
    this.drift = like.drift;
    this.#born = like.#born;
    this.#startMs = like.#startMs;
    this.#bootMs = like.#bootMs;
    this.#wallMs = like.#wallMs;
    this.#asleepMs = like.#asleepMs;
    like.#threads.push(this);
  }

  /** The clock of another thread of this process, which goes on while this one is blocked. */
  thread(name: string): NodeClock {
    const random = new Random(`${this.#startMs} ${name}`);
    return new NodeClock({ scheduler: this.#scheduler, random, linux: this.#linux, like: this });
  }

  now(): Moment {
    return { monotonic: this.monotonic(), suspend: this.#suspend() };
  }

  monotonic(): number {
    return this.#startMs + this.#elapsed() - this.#asleepMs;
  }

  date(): Date {
    return new Date(Math.floor(this.#wallMs + this.#elapsed()));
  }

  random(): number {
    return this.#random.next();
  }

  randomId(): bigint {
    return this.#ids.id();
  }

  /** Node.js counts from its loop's time, which is in whole milliseconds: a timer may run up to 1 ms early. */
  after(delayMs: number, run: () => void): Timer {
    const wholeMs = Math.max(1, Math.trunc(Math.min(delayMs, MAX_DELAY_MS)));
    const timer = new NodeTimer(Math.floor(this.monotonic() + EPSILON_MS) + wholeMs, run, this.#timers);
    if (this.#held.killed) timer.end();
    else this.#schedule(timer);
    return timer;
  }

  pace(delayMs: number, run: () => void): Timer {
    return this.after(delayMs, run);
  }

  afterPendingEvents(run: () => void): Timer {
    const timer = new NodeTimer(0, run, this.#timers);
    if (this.#held.killed) timer.end();
    else timer.event = this.#scheduler.after(0, () => this.#fire(timer, "immediate"));
    return timer;
  }

  /** Timers that keep the process alive. */
  get timers(): number {
    let count = 0;
    for (const timer of this.#timers) if (timer.referenced) count++;
    return count;
  }

  get killed(): boolean {
    return this.#held.killed;
  }

  get paused(): boolean {
    return this.#held.paused;
  }

  /** What the network has for the process: runs now, or after a pause. */
  deliver(run: () => void): void {
    this.#held.add("delivery", run);
  }

  pause(): void {
    this.#stopped = true;
    this.#held.pause();
    for (const thread of this.#threads) thread.pause();
  }

  /** Everything that was due meanwhile runs, each in an event of its own. */
  resume(): void {
    if (this.#suspendedAt !== undefined) this.#asleepMs += this.#elapsed() - this.#suspendedAt;
    this.#suspendedAt = undefined;
    this.#stopped = false;
    if (!this.#blocked) this.#held.resume();
    for (const thread of this.#threads) thread.resume();
  }

  /** The machine sleeps until `resume()`: a pause that the monotonic clock does not count. */
  suspend(): void {
    this.#suspendedAt ??= this.#elapsed();
    this.pause();
    for (const thread of this.#threads) thread.#suspendedAt ??= thread.#elapsed();
  }

  /** A loop of the program runs, and nothing else of this thread. */
  block(): void {
    this.#blocked = true;
    this.#held.pause();
  }

  unblock(): void {
    this.#blocked = false;
    if (!this.#stopped) this.#held.resume();
  }

  /** Ends the process. */
  kill(): void {
    this.#held.kill();
    for (const timer of [...this.#timers]) timer.cancel();
    for (const thread of this.#threads.splice(0)) thread.kill();
  }

  /** Sets the wall clock forward, or back. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  /** Since the start of the process, by its own clocks, with suspend. */
  #elapsed(): number {
    return (this.#scheduler.now - this.#born) * (1 + this.drift);
  }

  #suspend(): number {
    if (!this.#linux) return this.date().getTime();
    return Math.floor((this.#bootMs + this.#elapsed()) / UPTIME_STEP_MS) * UPTIME_STEP_MS;
  }

  #schedule(timer: NodeTimer): void {
    const elapsed = timer.due + this.#asleepMs - this.#startMs;
    const time = this.#born + elapsed / (1 + this.drift);
    timer.event = this.#scheduler.at(time, () => this.#fire(timer, "timer"));
  }

  #fire(timer: NodeTimer, phase: Phase): void {
    this.#held.add(phase, () => {
      if (timer.over) return;
      // The machine has slept since the timer was set.
      if (this.monotonic() < timer.due - EPSILON_MS) return this.#schedule(timer);
      timer.end();
      timer.run();
    });
  }
}
