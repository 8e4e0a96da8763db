import { watchQueue, type Cluster, type Hold, type QueueState } from "../../index.js";

/** The largest number of contenders that a state reports. */
const MAX_LIMIT = 1000;

/**
 * Watches the queue from the grant on. The library watches the key of a hold only after a second, which pays for short
 * holds; a command must not start before its loss would be noticed.
 */
export class HoldWatch {
  /** Called when the key is gone. */
  onGone: () => void = () => {};
  gone = false;
  readonly #stop = new AbortController();
  readonly #exclusive: boolean;

  /** Resolves when the watch is there. Rejects when the hold ends before, with its reason, or that of `signal`. */
  static async begin(cluster: Cluster, hold: Hold, signal: AbortSignal): Promise<HoldWatch> {
    const watch = new HoldWatch(hold);
    const early = (): void => watch.#stop.abort(signal.aborted ? signal.reason : hold.signal.reason);
    for (const each of [signal, hold.signal]) {
      if (each.aborted) early();
      each.addEventListener("abort", early);
    }
    try {
      await watch.#begin(cluster);
      return watch;
    } finally {
      for (const each of [signal, hold.signal]) each.removeEventListener("abort", early);
    }
  }

  private constructor(private readonly hold: Hold) {
    this.#exclusive = "fence" in hold;
  }

  stop(): void {
    this.#stop.abort();
  }

  async #begin(cluster: Cluster): Promise<void> {
    const limit = this.#exclusive ? 1 : MAX_LIMIT;
    const states = watchQueue(cluster, this.hold.name, { limit, signal: this.#stop.signal });
    const first = await states.next();
    if (!first.done) this.#judge(first.value);
    void this.#follow(states);
  }

  /** If the watch fails later, the library's own remains. */
  async #follow(states: AsyncIterable<QueueState>): Promise<void> {
    try {
      for await (const state of states) this.#judge(state);
    } catch {
      return;
    }
  }

  #judge({ holders, waiters, total }: QueueState): void {
    const { key, revision } = this.hold;
    const found = [...holders, ...waiters].some((each) => each.key === key && each.revision === revision);
    // A holder of an exclusive lock is the oldest. Others may not be among those that are reported.
    const complete = this.#exclusive || total.holders + total.waiters === holders.length + waiters.length;
    if (found || !complete || this.gone) return;
    this.gone = true;
    this.onGone();
  }
}
