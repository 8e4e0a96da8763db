import type { Timer } from "../../../src/util/clock.js";
import { StreamFailure, type FailureKind } from "../../../src/etcd/http2/failure.js";
import type { NodeClock } from "../node/node-clock.js";
import { Heartbeat, type HeartbeatSetting } from "./heartbeat.js";
import type { Link, Resettable } from "./link.js";

export interface ConnectionSetting extends HeartbeatSetting {
  readonly connectTimeoutMs: number;
}

/** A unary call or a stream on a connection. */
export interface Exchange {
  /** The connection is open: what waits is sent. */
  opened(): void;
  failed(failure: StreamFailure): void;
  /** The process was killed: only the member notices. */
  abandoned(): void;
}

/** One connection, as `src/etcd/http2/connection.ts` behaves: it never connects again. */
export class SimConnection implements Resettable {
  readonly #exchanges = new Set<Exchange>();
  readonly #heartbeat: Heartbeat;
  readonly #connectTimer: Timer;
  #state: "connecting" | "open" | "over" = "connecting";
  #severed = false;
  #draining = false;
  #retired = false;
  #failure: StreamFailure | undefined;

  constructor(
    readonly link: Link,
    readonly clock: NodeClock,
    setting: ConnectionSetting,
  ) {
    const { connectTimeoutMs } = setting;
    this.#heartbeat = new Heartbeat(clock, setting, {
      inUse: () => this.#state === "open" && this.#exchanges.size > 0,
      ping: () => this.#ping(),
      dead: (silentMs) => this.#fail("lost", `no answer to a ping: silent for ${Math.round(silentMs)} ms`),
    });
    this.#connectTimer = clock.after(connectTimeoutMs + 1, () =>
      this.#fail("connecting", `no connection within ${connectTimeoutMs} ms`),
    );
    this.#connectTimer.unref?.();
    link.connections.add(this);
    this.#connect();
  }

  get usable(): boolean {
    return !this.#draining;
  }

  get over(): boolean {
    return this.#state === "over";
  }

  get open(): boolean {
    return this.#state === "open";
  }

  /** The link was cut, so the member has closed the connection. A paused process is notified when it continues. */
  get severed(): boolean {
    return this.#severed;
  }

  /** `exchange` does not fail before this call returns. */
  add(exchange: Exchange): void {
    const failure = this.#failure;
    if (failure !== undefined) return queueMicrotask(() => exchange.failed(failure));
    this.#exchanges.add(exchange);
    if (this.#state === "open") this.#begin(exchange);
  }

  /** The exchange is over, or was cancelled. */
  remove(exchange: Exchange): void {
    this.#exchanges.delete(exchange);
    if (this.#retired) this.retire();
  }

  /** What arrives for an exchange: dropped if the connection is over. */
  receive(run: () => void): void {
    this.clock.deliver(() => {
      if (this.#state !== "open") return;
      this.#heartbeat.received();
      run();
    });
  }

  /** Closes the connection as soon as nothing uses it. */
  retire(): void {
    this.#retired = true;
    if (this.#exchanges.size === 0) this.#end(new StreamFailure("retired", "the connection was closed"));
  }

  /** The link is cut. */
  reset(): void {
    this.#severed = true;
    this.clock.deliver(() => {
      if (this.#state === "open") this.#fail("lost", "read ECONNRESET");
      else this.#refused();
    });
  }

  /** The process was killed. */
  abandon(): void {
    this.#state = "over";
    this.link.connections.delete(this);
    for (const exchange of [...this.#exchanges]) exchange.abandoned();
    this.#exchanges.clear();
  }

  /** Two round trips, of which the link draws the last one: TCP, and the peer's first frame. */
  #connect(): void {
    if (this.link.state === "cut") {
      this.link.scheduler.after(this.link.latencyMs(), () => this.clock.deliver(() => this.#refused()));
      return;
    }
    const accepted = (): void => this.clock.deliver(() => this.#opened());
    this.link.send("request", () => this.link.send("answer", accepted, "connect"), "connect");
  }

  #refused(): void {
    this.#fail("connecting", "connect ECONNREFUSED");
  }

  #opened(): void {
    if (this.#state !== "connecting") return;
    this.#state = "open";
    this.#connectTimer.cancel();
    for (const exchange of [...this.#exchanges]) this.#begin(exchange);
  }

  #begin(exchange: Exchange): void {
    this.#heartbeat.used();
    exchange.opened();
  }

  #ping(): void {
    const answered = (): void => this.receive(() => {});
    this.link.send("request", () => this.link.send("answer", answered, "ping"), "ping");
  }

  #fail(kind: FailureKind, message: string): void {
    this.#end(new StreamFailure(kind, message));
  }

  #end(failure: StreamFailure): void {
    if (this.#state === "over") return;
    // The loss of an idle connection is no failure of the member: the next call gets a new connection.
    if (this.#retired || (this.#state === "open" && this.#exchanges.size === 0)) this.#draining = true;
    this.#state = "over";
    this.#failure = failure;
    this.#connectTimer.cancel();
    this.#heartbeat.stop();
    this.link.connections.delete(this);
    const exchanges = [...this.#exchanges];
    this.#exchanges.clear();
    for (const exchange of exchanges) exchange.failed(failure);
  }
}
