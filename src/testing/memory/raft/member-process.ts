import type { Timer } from "../../../base/util/clock.js";
import type { Scheduler } from "../event-queue.js";

/** What waits for the end of a pause, or is dropped with the process. */
interface Work {
  readonly life: number;
  run: (() => void) | undefined;
}

/** The process of one member: its timers, and what arrives for it. Nothing of it runs while it is paused or dead. */
export class MemberProcess implements Scheduler {
  #state: "running" | "paused" | "dead" = "running";
  /** Timers of an earlier life never run. */
  #life = 0;
  #held: Work[] = [];
  /** A member that starts again serves its clients once it knows a leader (ReadyNotify in etcdserver/server.go). */
  #serves = true;
  #arrived: (() => void)[] = [];

  constructor(private readonly scheduler: Scheduler) {}

  get now(): number {
    return this.scheduler.now;
  }

  get running(): boolean {
    return this.#state === "running";
  }

  /** How often it was killed. */
  get life(): number {
    return this.#life;
  }

  get dead(): boolean {
    return this.#state === "dead";
  }

  at(time: number, run: () => void): Timer {
    return this.after(time - this.now, run);
  }

  after(ms: number, run: () => void): Timer {
    const work: Work = { life: this.#life, run };
    const timer = this.scheduler.after(ms, () => this.#do(work));
    const cancel = (): void => {
      work.run = undefined;
      timer.cancel();
    };
    return { cancel };
  }

  /** Runs what arrives from outside: now, or later, or never. */
  deliver(run: () => void): void {
    if (this.#serves) this.#do({ life: this.#life, run });
    else if (!this.dead) this.#arrived.push(run);
  }

  /** Serves its clients from now on. */
  ready(): void {
    if (this.#serves || this.dead) return;
    this.#serves = true;
    for (const run of this.#arrived.splice(0)) this.deliver(run);
  }

  pause(): void {
    if (this.#state === "running") this.#state = "paused";
  }

  /** What was due meanwhile runs in the order in which it was due, each in an event of its own. */
  resume(): void {
    if (this.#state !== "paused") return;
    this.#state = "running";
    for (const work of this.#held.splice(0)) this.scheduler.after(0, () => this.#do(work));
  }

  kill(): void {
    this.#state = "dead";
    this.#life++;
    this.#held = [];
    this.#arrived = [];
  }

  restart(): void {
    this.#state = "running";
    this.#serves = false;
  }

  #do(work: Work): void {
    if (work.life !== this.#life || this.#state === "dead") return;
    if (this.#state === "paused") this.#held.push(work);
    else work.run?.();
  }
}
