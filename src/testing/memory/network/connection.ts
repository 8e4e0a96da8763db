import { type FailureKind, StreamFailure } from "../../../etcd/http2/failure.js";
import type { Clock, Timer } from "../../../base/util/clock.js";
import { type Link, OrderedPath, type Resettable } from "./link.js";
import type { CallListener, StreamListener } from "./wire.js";
import type { Refusal, ServerStream, SimServer, UnaryReply, UnaryRequest } from "../protocol.js";

/** The clock of the client's process. */
export interface ProcessClock extends Clock {
  /** What the network has for the process: runs now, or when the process runs again. */
  deliver(run: () => void): void;
}

export interface ConnectionSetting extends HeartbeatSetting {
  readonly connectTimeoutMs: number;
}

/** For a microtask: test runners replace `queueMicrotask`. */
const NOW = Promise.resolve();

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
    readonly clock: ProcessClock,
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
    if (failure !== undefined) return void NOW.then(() => exchange.failed(failure));
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

/** One unary call on a connection. */
export class UnaryExchange implements Exchange {
  #sent = false;
  #over = false;

  constructor(
    private readonly connection: SimConnection,
    private readonly request: { readonly server: SimServer; readonly request: UnaryRequest },
    private readonly listener: CallListener,
  ) {}

  opened(): void {
    if (this.#over) return;
    const { link } = this.connection;
    const { request } = this.request;
    this.#sent = true;
    this.listener.sent();
    const isLost = link.random.chance(link.profile.loseRequest);
    if (isLost) link.lose("request", request);
    else link.send("request", () => this.#execute(), request);
  }

  failed(failure: StreamFailure): void {
    if (this.#over) return;
    this.#over = true;
    this.listener.failed(failure, this.#sent);
  }

  cancel(): void {
    this.#over = true;
    this.connection.remove(this);
  }

  abandoned(): void {
    this.#over = true;
  }

  /** Also if the caller has given up, and if its connection is over: it was sent. */
  #execute(): void {
    const { link } = this.connection;
    this.request.server.call(this.request.request, (reply) => {
      if (link.losesAnswerTo?.(this.request.request)) return this.connection.reset();
      const what = { request: this.request.request, reply };
      const isLost = link.random.chance(link.profile.loseAnswer);
      if (isLost) link.lose("answer", what);
      else link.send("answer", () => this.connection.receive(() => this.#replied(reply)), what);
    });
  }

  #replied(reply: UnaryReply): void {
    if (this.#over) return;
    this.#over = true;
    this.connection.remove(this);
    this.listener.replied(reply);
  }
}

type OpenOnServer<Command, Answer> = (out: (answer: Answer | Refusal) => void) => ServerStream<Command>;

/** One stream on a connection. What is sent before the connection is open waits for it. */
export class StreamExchange<Command, Answer extends object> implements Exchange, ServerStream<Command> {
  readonly #requests: OrderedPath;
  readonly #answers: OrderedPath;
  #waiting: Command[] = [];
  /** Set while the member has the stream. */
  #server: ServerStream<Command> | undefined;
  #sent = false;
  #over = false;

  constructor(
    private readonly connection: SimConnection,
    private readonly openOnServer: OpenOnServer<Command, Answer>,
    private readonly listener: StreamListener<Answer>,
  ) {
    this.#requests = new OrderedPath(connection.link, "request");
    this.#answers = new OrderedPath(connection.link, "answer");
  }

  opened(): void {
    if (this.#over) return;
    this.#sent = true;
    this.#requests.send(() => this.#openOnServer(), "open");
    for (const command of this.#waiting) this.#transmit(command);
    this.#waiting = [];
  }

  send(command: Command): void {
    if (this.#over) return;
    if (this.#sent) this.#transmit(command);
    else this.#waiting.push(command);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    this.#closeOnServer();
    this.connection.remove(this);
  }

  failed(failure: StreamFailure): void {
    if (this.#over) return;
    this.#over = true;
    this.#closeOnServer();
    this.listener.failed(failure, this.#sent);
  }

  abandoned(): void {
    this.#over = true;
    this.#closeOnServer();
  }

  #transmit(command: Command): void {
    this.#requests.send(() => this.#server?.send(command), command);
  }

  #openOnServer(): void {
    // A connection that is over opens no stream, though TCP may repeat what was sent on it.
    if (this.#over || this.connection.severed) return;
    const { serverEnds } = this.connection.link;
    serverEnds.add(this.#endOnServer);
    const stream = this.openOnServer((answer) => {
      // The member has ended the stream.
      if ("refused" in answer) serverEnds.delete(this.#endOnServer);
      this.#answers.send(() => this.connection.receive(() => this.#answered(answer)), answer);
    });
    if (serverEnds.has(this.#endOnServer)) this.#server = stream;
  }

  #endOnServer = (): void => {
    this.connection.link.serverEnds.delete(this.#endOnServer);
    this.#server?.close();
    this.#server = undefined;
  };

  /** The end of the stream arrives after all that was sent. */
  #closeOnServer(): void {
    if (this.#sent) this.#requests.send(this.#endOnServer, "close");
  }

  #answered(answer: Answer | Refusal): void {
    if (this.#over) return;
    if ("refused" in answer) {
      this.#over = true;
      this.connection.remove(this);
    }
    this.listener.answer(answer);
  }
}
