import { setTimeout as delay } from "node:timers/promises";
import type { Lockable, Session } from "../peers/client.js";
import { now } from "./clock.js";
import type { CycleTask } from "./protocol.js";

/** Contenders that lock, hold, release, and repeat. A task may ask for refusals or for bare calls instead. */
export class Cycles {
  readonly journal: number[] = [];
  granted = 0;
  #failure: Error | undefined;
  readonly #stopped = new AbortController();
  readonly #ended: Promise<unknown>;
  readonly #until: number;

  constructor(
    sessions: readonly Session[],
    private readonly task: CycleTask,
  ) {
    this.#until = performance.now() + task.forMs;
    const contenders = Array.from({ length: task.contenders }, (_, n) => {
      const name = task.names === "one" ? task.name : `${task.name}-${n}`;
      return this.#contend(n, (sessions[n % sessions.length] as Session).lockable(name));
    });
    this.#ended = Promise.all(contenders);
  }

  /** Starts no further cycle; waiting contenders end as `close` ends them. */
  async stop(close: () => Promise<void>): Promise<void> {
    this.#stopped.abort();
    await close();
    await this.#ended;
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #contend(contender: number, lockable: Lockable): Promise<void> {
    const once = { cycle: this.#once, try: this.#tryOnce, call: this.#callOnce }[this.task.kind];
    try {
      if (this.task.afterMs) await delay(this.task.afterMs * (contender + 1));
      for (let cycle = 0; cycle !== this.task.cycles && !this.#stopped.signal.aborted; cycle++)
        await once.call(this, contender, lockable);
    } catch (error) {
      // After the stop, errors are its own effect; a client that polls gives up when its time is over.
      if (!this.#stopped.signal.aborted && performance.now() < this.#until) this.#failure ??= error as Error;
    }
  }

  async #once(contender: number, lockable: Lockable): Promise<void> {
    const asked = now();
    const held = await lockable.lock(Math.max(1, this.#until - performance.now()));
    const granted = now();
    this.granted++;
    await this.#hold();
    const released = now();
    this.journal.push(contender, asked, granted, released);
    await held.release();
  }

  async #tryOnce(contender: number, lockable: Lockable): Promise<void> {
    const asked = now();
    if (await lockable.tryLock?.()) throw new Error("expected the lock to be taken");
    const answered = now();
    this.journal.push(contender, asked, answered, answered);
  }

  async #callOnce(contender: number, lockable: Lockable): Promise<void> {
    if (lockable.call === undefined) throw new Error("this client makes no bare calls");
    const asked = now();
    await lockable.call();
    const answered = now();
    this.granted++;
    this.journal.push(contender, asked, answered, answered);
  }

  async #hold(): Promise<void> {
    const { holdMs } = this.task;
    const { signal } = this.#stopped;
    if (holdMs === undefined)
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    else if (holdMs > 0) await delay(holdMs);
  }
}
