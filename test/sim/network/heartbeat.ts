import type { Clock, Timer } from "../../../src/util/clock.js";

export interface HeartbeatSetting {
  readonly pingIntervalMs: number;
  readonly pingTimeoutMs: number;
}

interface Pinged {
  /** Calls or streams use the connection. */
  inUse(): boolean;
  ping(): void;
  dead(silentMs: number): void;
}

/** As `src/etcd/http2/connection.ts`: a connection in use that is silent is pinged, and ends without an answer. */
export class Heartbeat {
  #timer: Timer | undefined;
  #pinged = false;
  #lastReceived: number;

  constructor(
    private readonly clock: Clock,
    private readonly setting: HeartbeatSetting,
    private readonly peer: Pinged,
  ) {
    this.#lastReceived = clock.monotonic();
  }

  used(): void {
    if (this.#timer !== undefined) return;
    this.received();
    this.#next(this.setting.pingIntervalMs);
  }

  received(): void {
    this.#lastReceived = this.clock.monotonic();
    this.#pinged = false;
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #next(delayMs: number): void {
    this.#timer = this.clock.after(delayMs + 1, () => this.#check());
    this.#timer.unref?.();
  }

  #check(): void {
    this.#timer = undefined;
    if (!this.peer.inUse()) return;
    if (this.#pinged) return this.#suspect();
    const { pingIntervalMs, pingTimeoutMs } = this.setting;
    const silentMs = this.clock.monotonic() - this.#lastReceived;
    this.#pinged = silentMs >= pingIntervalMs;
    if (!this.#pinged) return this.#next(pingIntervalMs - silentMs);
    this.#next(pingTimeoutMs);
    this.peer.ping();
  }

  /** After a pause, timers may run before what has arrived is read. */
  #suspect(): void {
    this.#timer = this.clock.afterPendingEvents(() => {
      this.#timer = undefined;
      if (this.#pinged) this.peer.dead(this.clock.monotonic() - this.#lastReceived);
      else this.#check();
    });
  }
}
