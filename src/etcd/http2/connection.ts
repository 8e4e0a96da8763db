// A client's side of HTTP/2, for one connection to one peer. It knows streams and flow control, and nothing of gRPC.
//
// Why not `node:http2`? A lock is a few small calls to one server, and what they cost is the client's processor time. One
// transaction after the other on etcd 3.4, on one 2-core machine, in microseconds of CPU: own frames 48, `node:http2` 155 to
// 185, bare `@grpc/grpc-js` 280 to 310, etcd3 300 to 410, Go's client 110 to 130. And only the code that writes the frames
// knows exactly whether a call may have been executed.
//
// - A stream that the connection has not opened was not processed; one that was opened may have been, unless the peer says
//   that it was not (REFUSED_STREAM, or GOAWAY with a lower ID).
// - Nothing is sent before the peer's SETTINGS have arrived: a server that does not speak HTTP/2 gets no request.
// - A connection that was lost while no stream used it is not `usable`, and is no failure.
// - What a hostile peer can cost is bounded: frames, header blocks, frames that carry nothing, data beyond the windows, and
//   the memory of all messages that are not complete.
// - The socket keeps the process alive only while a stream uses the connection.
import type { Deadline, Deadlines } from "../../util/deadlines.js";
import {
  CONNECTION_PREFACE,
  type ErrorName,
  FrameReader,
  goawayFrame,
  Http2Error,
  PeerSettings,
  pingAckFrame,
  pingFrame,
  rstStreamFrame,
  SETTING,
  settingsAckFrame,
  settingsFrame,
  windowUpdateFrame,
} from "./frames.js";
import { Incoming, MAX_HEADER_LIST_BYTES, ReceiveWindows } from "./incoming.js";
import { Outgoing } from "./outgoing.js";
import {
  type ClientSocket,
  FirstBytes,
  openSocket,
  type OpenSocket,
  SocketWriter,
  type Target,
} from "./socket.js";
import {
  closedText,
  goawayFailure,
  type Http2Stream,
  messageOf,
  resetFailure,
  StreamFailure,
  turnedAway,
} from "./stream.js";

interface HeartbeatSetting {
  /** A connection in use that is silent for this long is pinged. */
  readonly pingIntervalMs: number;
  /** A ping that stays unanswered, with nothing else received, for this long ends the connection. */
  readonly pingTimeoutMs: number;
}

interface Pinged {
  /** No stream uses the connection, or waits for it. */
  idle(): boolean;
  /** Streams are open: etcd ends connections that ping without one. */
  inUse(): boolean;
  ping(): void;
  dead(silentMs: number): void;
}

/** Detects a peer that no longer answers. It sends no ping while bytes arrive, or while no stream uses the connection. */
class Heartbeat {
  #next: Deadline | undefined;
  #pinged = false;
  #lastReceived: number;

  constructor(
    private readonly setting: HeartbeatSetting,
    private readonly deadlines: Deadlines,
    private readonly peer: Pinged,
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

/**
 * The first bytes of a connection: RFC 9113, section 3.4. Without a dynamic table each header block of the peer stands
 * alone; the window of the connection, which no setting opens, is opened by a frame of its own.
 */
const GREETING = Buffer.concat([
  Buffer.from(CONNECTION_PREFACE, "latin1"),
  settingsFrame([
    [SETTING.HEADER_TABLE_SIZE, 0],
    [SETTING.ENABLE_PUSH, 0],
    [SETTING.INITIAL_WINDOW_SIZE, ReceiveWindows.STREAM_BYTES],
    [SETTING.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST_BYTES],
  ]),
  windowUpdateFrame(0, ReceiveWindows.CONNECTION_BYTES - ReceiveWindows.INITIAL_BYTES),
]);

const MAX_FRAME_BYTES = 16_384;
/** As long as the longest message. */
const MAX_KEPT_BYTES = 256 * 1024 * 1024;
const PING_DATA = Buffer.from("leasehld");

export interface ConnectionSetting extends HeartbeatSetting {
  /** For the name, TCP, TLS and the peer's first frame together. */
  readonly connectTimeoutMs: number;
  /** For tests: see `keepsTooMuch`. */
  readonly maxKeptBytes?: number;
  /** For tests: stream IDs begin here. */
  readonly firstStreamId?: number;
  /** For tests. Default: a socket of Node.js. */
  readonly open?: OpenSocket | undefined;
}

/**
 * One HTTP/2 connection of a client to one peer (RFC 9113). Begins to connect at once; streams that are sent before it is
 * open wait. It never connects again: `usable` tells when new streams need another one.
 */
export class Connection {
  readonly #connectDeadline: Deadline;
  readonly #socket: ClientSocket;
  readonly #settings = new PeerSettings();
  readonly #outgoing: Outgoing;
  readonly #windows = new ReceiveWindows((id, bytes) => this.#write(windowUpdateFrame(id, bytes)));
  readonly #reader: FrameReader;
  readonly #heartbeat: Heartbeat;
  readonly #firstBytes = new FirstBytes();
  #state: "connecting" | "greeting" | "open" | "over" = "connecting";
  #writer: SocketWriter | undefined;
  /** No new streams may be opened on this connection. */
  #draining = false;
  /** Ends as soon as no stream uses it. */
  #retired = false;
  /** Why the peer wants no new streams. */
  #goaway: StreamFailure | undefined;
  #failure: StreamFailure | undefined;

  constructor(
    private readonly target: Target,
    private readonly setting: ConnectionSetting,
    private readonly deadlines: Deadlines,
  ) {
    this.#outgoing = new Outgoing(this.#settings, setting.firstStreamId ?? 1);
    this.#reader = new FrameReader(new Incoming(this.#events(), () => deadlines.now()), MAX_FRAME_BYTES);
    this.#heartbeat = new Heartbeat(setting, deadlines, {
      idle: () => this.#outgoing.idle,
      inUse: () => this.#outgoing.streams.size > 0,
      ping: () => this.#write(pingFrame(PING_DATA)),
      dead: (silentMs) => this.#fail("lost", `no answer to a ping: silent for ${Math.round(silentMs)} ms`),
    });
    this.#connectDeadline = deadlines.add(setting.connectTimeoutMs, () => this.#connectTimedOut());
    const open = setting.open ?? openSocket;
    this.#socket = open(target, {
      connected: () => this.#greet(),
      data: (chunk) => this.#read(chunk),
      closed: (error, asked) => this.#closed(error, asked === true),
    });
  }

  /** Whether new streams can be opened, now or once the connection is open. A failed connection reports its failure to them. */
  get usable(): boolean {
    return !this.#draining && !this.#outgoing.exhausted;
  }

  /** What a stream waits for that was sent, and is not opened yet. `undefined`: for the connection to open. */
  get holdUp(): string | undefined {
    return this.#state === "open" ? this.#outgoing.holdUp : undefined;
  }

  /** Whether all open streams together have too much memory for messages that are not complete. */
  get keepsTooMuch(): boolean {
    let bytes = 0;
    for (const stream of this.#outgoing.streams.values()) bytes += stream.kept;
    return bytes > (this.setting.maxKeptBytes ?? MAX_KEPT_BYTES);
  }

  /** `stream` is new, or has something to send. It does not fail before this call returns. */
  send(stream: Http2Stream): void {
    const failure = this.#failure;
    if (failure !== undefined) return process.nextTick(() => stream.failed(failure, false));
    this.#writer?.keepAlive(true);
    this.#outgoing.add(stream);
    this.#heartbeat.used();
  }

  /** The stream is reset: what has been sent of it cannot be called back. */
  cancel(stream: Http2Stream): void {
    if (stream.id !== 0 && this.#state === "open") {
      this.#write(rstStreamFrame(stream.id, "CANCEL"));
      this.#outgoing.expectReaction();
    }
    this.finished(stream);
  }

  /** The stream uses the connection no longer. */
  finished(stream: Http2Stream): void {
    this.#outgoing.remove(stream);
    // The peer may allow only so many streams at a time.
    this.#outgoing.pump();
    if (this.#outgoing.idle) this.#idle();
  }

  /** Closes the connection as soon as no stream uses it. Until then it takes new ones: the watches of a member read on it. */
  retire(): void {
    this.#retired = true;
    if (this.#outgoing.idle) this.#idle();
  }

  #idle(): void {
    if (this.#state === "over") return;
    if (!this.#draining && !this.#retired) return this.#writer?.keepAlive(false);
    if (this.#state === "open") this.#write(goawayFrame(0, "NO_ERROR", ""));
    this.#end(new StreamFailure("retired", "the connection was closed"));
    if (this.#writer === undefined) return void this.#socket.destroy();
    // What was written leaves before the connection does, unless the peer does not read it.
    this.#writer.flush();
    this.#socket.destroySoon();
    this.deadlines.add(this.setting.pingTimeoutMs, () => this.#socket.destroy());
  }

  #greet(): void {
    this.#state = "greeting";
    this.#writer = new SocketWriter(this.#socket, this.deadlines, () => this.#outgoing.pump());
    this.#write(GREETING);
  }

  #read(chunk: Buffer): void {
    if (this.#state === "over") return;
    this.#heartbeat.received();
    if (this.#state === "greeting") this.#firstBytes.add(chunk);
    try {
      this.#reader.read(chunk);
      if (this.#writer?.overfull)
        throw new Http2Error("ENHANCE_YOUR_CALM", "the peer sends, but does not read");
    } catch (error) {
      if (!(error instanceof Http2Error)) throw error;
      this.#violated(error);
    }
  }

  #events(): ConstructorParameters<typeof Incoming>[0] {
    return {
      settings: (payload) => this.#peerSettings(payload),
      ping: (payload) => this.#writer?.writeLate(pingAckFrame(payload)),
      pong: () => {},
      goaway: (lastId, code, debug) => this.#peerLeaves(lastId, code, debug),
      windowUpdate: (id, bytes) => this.#widen(id, bytes),
      headers: (id, headers, endStream) => {
        const stream = this.#outgoing.known(id);
        stream?.headers(headers, endStream);
        return stream !== undefined || this.#outgoing.takeReaction();
      },
      data: (id, { content, bytes, endStream }) => {
        const stream = this.#outgoing.known(id);
        this.#windows.received(stream, bytes, endStream);
        if (content.length > 0 || endStream) stream?.data(content, endStream);
      },
      reset: (id, code) => this.#reset(this.#outgoing.known(id), code),
    };
  }

  #peerSettings(payload: Buffer): void {
    const before = this.#settings.initialWindow;
    this.#settings.apply(payload);
    this.#write(settingsAckFrame());
    this.#outgoing.shiftWindows(this.#settings.initialWindow - before);
    if (this.#state === "greeting") this.#open();
    else this.#outgoing.pump();
  }

  #open(): void {
    this.#state = "open";
    this.#connectDeadline.cancel();
    if (this.#writer) this.#outgoing.begin(this.#writer);
    // Each attempt to connect to one of several addresses makes a new handle, which keeps the process alive.
    if (this.#outgoing.idle) this.#idle();
  }

  #widen(id: number, bytes: number): boolean {
    const stream = id === 0 ? undefined : this.#outgoing.known(id);
    if (id === 0) this.#outgoing.widen(bytes);
    else if (stream !== undefined) this.#outgoing.widenStream(stream, bytes);
    return this.#outgoing.takeReaction();
  }

  /** Returns whether the stream was open. */
  #reset(stream: Http2Stream | undefined, code: ErrorName): boolean {
    if (stream === undefined) return false;
    this.#outgoing.remove(stream);
    stream.failed(resetFailure(code), code !== "REFUSED_STREAM");
    this.finished(stream);
    return true;
  }

  #peerLeaves(lastId: number, code: ErrorName, debug: string): void {
    // A polite goodbye often follows the complaint.
    if (this.#goaway === undefined || code !== "NO_ERROR") this.#goaway = goawayFailure(code, debug);
    this.#draining = true;
    const { streams } = this.#outgoing;
    // Streams above the last ID were not processed, nor those that wait here: RFC 9113, section 6.8.
    const unprocessed = [...streams.values()].filter(({ id }) => id > lastId);
    for (const stream of [...unprocessed, ...this.#outgoing.unopened()]) {
      this.#outgoing.remove(stream);
      stream.failed(this.#goaway, false);
    }
    if (this.#outgoing.idle) this.#idle();
  }

  #connectTimedOut(): void {
    const what = this.#state === "greeting" ? "no HTTP/2 from the member" : "no connection";
    this.#fail("connecting", this.#firstBytes.hint ?? `${what} within ${this.setting.connectTimeoutMs} ms`);
  }

  #violated(error: Http2Error): void {
    this.#write(goawayFrame(0, error.code, ""));
    this.#writer?.flush();
    const kind = this.#state === "greeting" ? "connecting" : "protocol";
    this.#fail(kind, this.#firstBytes.hint ?? error.message, error);
  }

  #closed(error: Error | undefined, asked: boolean): void {
    const connecting = this.#state === "connecting" || this.#state === "greeting";
    if (this.#goaway !== undefined) return this.#end(this.#goaway);
    if (connecting && asked) return this.#end(turnedAway(error));
    const closed = closedText(this.#state, this.target.tls !== undefined);
    const text = this.#firstBytes.hint ?? (error === undefined ? closed : messageOf(error));
    this.#end(new StreamFailure(connecting ? "connecting" : "lost", text, { cause: error }));
  }

  #fail(kind: StreamFailure["kind"], message: string, cause?: Error): void {
    this.#end(new StreamFailure(kind, message, { cause }));
    this.#socket.destroy();
  }

  /** Every stream ends with `failure`; the peer may have processed those that were opened. */
  #end(failure: StreamFailure): void {
    if (this.#state === "over") return;
    const wasOpen = this.#state === "open";
    this.#state = "over";
    this.#failure = failure;
    this.#connectDeadline.cancel();
    this.#heartbeat.stop();
    // The loss of an idle connection is no failure of the member: the next stream gets a new connection.
    if (this.#retired || (wasOpen && this.#outgoing.idle)) this.#draining = true;
    for (const stream of this.#outgoing.close()) stream.failed(failure, stream.id !== 0);
  }

  #write(frame: Buffer): void {
    this.#writer?.write(frame);
  }
}
