import type { Clock, Timer } from "../../async/clock.js";
import { keyText, type Watch, type WatchListener } from "./watch.js";

/** Contenders that take turns come back within this time. */
const KEPT_MS = 5000;
/** More than take turns in one process. */
const MAX_KEPT = 256;
/** The release of our own key is one event; from the second on the key lives on without us, and telling it costs. */
const MAX_EVENTS = 2;

interface IdleWatch {
  readonly watch: Watch;
  readonly since: number;
  events: number;
}

/**
 * Watches on single keys that nobody needs at the moment. Who contends for a lock waits for the same key again and
 * again: a watch that went on meanwhile has missed nothing, so neither creating it nor a read after that is needed.
 */
export class IdleWatches {
  readonly #byKey = new Map<string, IdleWatch>();
  #timer: Timer | undefined;

  constructor(private readonly clock: Clock) {}

  /** Takes the watch over from its owner. */
  add(watch: Watch): void {
    const key = keyText(watch.key);
    this.#remove(key);
    const parked = { watch, since: this.clock.monotonic(), events: 0 };
    watch.listener = this.#listener(parked, key);
    this.#byKey.set(key, parked);
    const [oldest] = this.#byKey.keys();
    if (this.#byKey.size > MAX_KEPT && oldest !== undefined) this.#remove(oldest);
    this.#timer ??= this.clock.after(KEPT_MS, () => this.#expire());
  }

  /** One that has told, or will tell, every deletion of the key from revision `from` on. */
  take(target: string | Buffer, from: bigint): Watch | undefined {
    const key = keyText(target);
    const watch = this.#byKey.get(key)?.watch;
    // Its stream may be gone without its having been told yet.
    if (watch?.createdAt === undefined || watch.createdAt >= from || watch.over) return undefined;
    this.#byKey.delete(key);
    return watch;
  }

  /** Ends them all. */
  clear(): void {
    for (const key of [...this.#byKey.keys()]) this.#remove(key);
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #remove(key: string): void {
    this.#byKey.get(key)?.watch.cancel();
    this.#byKey.delete(key);
  }

  /** In the order in which they came. */
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

  #listener(parked: IdleWatch, key: string): WatchListener {
    const over = (): void => {
      if (this.#byKey.get(key) === parked) this.#byKey.delete(key);
    };
    const event = (): void => {
      if (++parked.events === MAX_EVENTS) this.#remove(key);
    };
    return { created: () => undefined, event, interrupted: over, refused: over };
  }
}
