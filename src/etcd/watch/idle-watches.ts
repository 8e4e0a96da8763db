import type { Clock, Timer } from "../../async/clock.js";
import { keyText, type Watch, type WatchListener, type WatchTarget } from "./watch.js";

/** Contenders that take turns watch the same key again within this time. */
const KEPT_MS = 5000;
/** More than the contenders that take turns in one process. */
const MAX_KEPT = 256;
/**
 * The release of this client's own key is one event, and so is that of another key in a range. From the next one on, only
 * others use the keys, and their events cost.
 */
const maxEvents = ({ end }: Watch): number => (end === undefined ? 2 : 3);

interface IdleWatch {
  readonly watch: Watch;
  readonly since: number;
  events: number;
}

/** A key of its own for each range. */
function rangeText({ key, end = "" }: Pick<WatchTarget, "key" | "end">): string {
  const first = keyText(key);
  return `${String(first.length)}:${first}${keyText(end)}`;
}

/**
 * Watches for deletions that no waiter needs at the moment. A contender for a lock waits for the same keys again and again:
 * a watch that continued meanwhile has missed nothing, so the next wait needs neither a create nor a read after it.
 */
export class IdleWatches {
  readonly #byKey = new Map<string, IdleWatch>();
  #timer: Timer | undefined;

  constructor(private readonly clock: Clock) {}

  /** Takes over the watch from its listener. */
  add(watch: Watch): void {
    const key = rangeText(watch);
    this.#remove(key);
    const idle = { watch, since: this.clock.monotonic(), events: 0 };
    watch.listener = this.#listener(idle, key);
    this.#byKey.set(key, idle);
    const [oldest] = this.#byKey.keys();
    if (this.#byKey.size > MAX_KEPT && oldest !== undefined) this.#remove(oldest);
    this.#timer ??= this.clock.after(KEPT_MS, () => this.#expire());
  }

  /** A watch that has reported, or will report, every deletion in the range from revision `from` on. */
  take(target: Pick<WatchTarget, "key" | "end">, from: bigint): Watch | undefined {
    const key = rangeText(target);
    const watch = this.#byKey.get(key)?.watch;
    // Its stream may be gone before its listener is notified.
    if (watch?.createdAt === undefined || watch.createdAt >= from || watch.over) return undefined;
    this.#byKey.delete(key);
    return watch;
  }

  /** Cancels all idle watches. */
  clear(): void {
    for (const key of [...this.#byKey.keys()]) this.#remove(key);
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #remove(key: string): void {
    this.#byKey.get(key)?.watch.cancel();
    this.#byKey.delete(key);
  }

  /** Removes expired watches, oldest first. */
  #expire(): void {
    this.#timer = undefined;
    for (const [key, { since }] of this.#byKey) {
      const leftMs = since + KEPT_MS - this.clock.monotonic();
      if (leftMs > 0) {
        this.#timer = this.clock.after(leftMs, () => this.#expire());
        return;
      }
      this.#remove(key);
    }
  }

  #listener(idle: IdleWatch, key: string): WatchListener {
    const ended = (): void => {
      if (this.#byKey.get(key) === idle) this.#byKey.delete(key);
    };
    const events = (all: readonly unknown[]): void => {
      idle.events += all.length;
      if (idle.events >= maxEvents(idle.watch)) this.#remove(key);
    };
    return { created: () => undefined, events, interrupted: ended, refused: ended };
  }
}
