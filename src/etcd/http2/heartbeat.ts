import type { Timer } from "../../base/util/clock.js";
import type { Timers } from "../../base/util/timers.js";
import { setImmediate } from "../../base/util/own-context.js";

export interface HeartbeatSetting {
  /** A connection in use that is silent for this long is pinged. */
  readonly pingIntervalMs: number;
  /** A ping that stays unanswered, with nothing else received, for this long ends the connection. */
  readonly pingTimeoutMs: number;
}

/** Detects a peer that no longer answers. It sends no ping while bytes arrive, or while no stream uses the connection. */
export class Heartbeat {
  #next: Timer | undefined;
  #pinged = false;
  #lastReceived: number;

  constructor(
    private readonly setting: HeartbeatSetting,
    private readonly deadlines: Timers,
    private readonly peer: {
      /** No stream uses the connection, or waits for it. */
      idle(): boolean;
      /** Streams are open: etcd ends connections that ping without one. */
      inUse(): boolean;
      ping(): void;
      dead(silentMs: number): void;
    },
  ) {
    this.#lastReceived = deadlines.now();
  }

  /** A stream was opened. */
  used(): void {
    if (this.#next !== undefined) return;
    // The silence of an idle connection says nothing.
    this.#lastReceived = this.deadlines.now();
    this.#pinged = false;
    this.#next = this.deadlines.add(this.setting.pingIntervalMs, () => this.#check());
  }

  /** Something has arrived. */
  received(): void {
    this.#lastReceived = this.deadlines.now();
    this.#pinged = false;
  }

  /** The connection is over. */
  stop(): void {
    this.#next?.cancel();
  }

  #check(): void {
    this.#next = undefined;
    if (this.peer.idle()) return;
    if (this.#pinged) return this.#suspect();
    const { pingIntervalMs, pingTimeoutMs } = this.setting;
    const silentMs = this.#silentMs();
    const due = silentMs >= pingIntervalMs;
    this.#pinged = due && this.peer.inUse();
    if (this.#pinged) this.peer.ping();
    const restMs = due ? pingIntervalMs : pingIntervalMs - silentMs;
    this.#next = this.deadlines.add(this.#pinged ? pingTimeoutMs : restMs, () => this.#check());
  }

  /** After a pause of the process its timers run before it reads what has arrived meanwhile. */
  #suspect(): void {
    setImmediate(() => {
      if (this.#pinged) this.peer.dead(this.#silentMs());
      else if (this.#next === undefined) this.#check();
    });
  }

  #silentMs(): number {
    return this.deadlines.now() - this.#lastReceived;
  }
}
