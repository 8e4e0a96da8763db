// A client's side of HTTP/2, for one connection to one peer. It knows streams and flow control, and nothing of gRPC.
//
// Why not `node:http2`? A lock is a few small calls to one server, and what they cost is the client's processor time. One
// transaction after the other on etcd 3.4, on one 2-core machine, in microseconds of CPU: own frames 48, `node:http2` 155 to
// 185, bare `@grpc/grpc-js` 280 to 310, etcd3 300 to 410, Go's client 110 to 130. And only the code that writes the frames
// knows exactly whether a call may have been executed.
//
// - A stream that the connection has not opened was not processed; one that was opened may have been, unless the peer says
//   that it was not (REFUSED_STREAM, or GOAWAY with a lower ID).
// - Requests follow the preface at once, by the settings that hold until the peer's arrive (RFC 9113, section 3.4): a first
//   call takes one round trip. A peer whose first bytes are not HTTP/2 has certainly processed none of them; those that it
//   refuses, as it allows fewer, wait again.
// - A connection that was lost while no stream used it is not `usable`, and is no failure.
// - What a hostile peer can cost is bounded: frames, header blocks, frames that carry nothing, data beyond the windows, and
//   the memory of all messages that are not complete, on all connections of the process.
// - The socket keeps the process alive only while a stream uses the connection.
import type { Timer } from "../../base/util/clock.js";
import { nextTick } from "../../base/util/own-context.js";
import type { Timers } from "../../base/util/timers.js";
import { Endpoint, type Headers, MAX_HEADER_LIST_BYTES } from "./endpoint.js";
import {
  closedText,
  goawayFailure,
  isTlsVerdict,
  messageOf,
  resetFailure,
  StreamFailure,
  tooLong,
  turnedAway,
} from "./failure.js";
import {
  CONNECTION_PREFACE,
  type ErrorName,
  FLAG,
  type Frame,
  FRAME,
  FRAME_HEADER_BYTES,
  goawayFrame,
  headersFrames,
  Http2Error,
  MAX_WINDOW,
  PeerSettings,
  pingAckFrame,
  pingFrame,
  rstStreamFrame,
  SETTING,
  settingsAckFrame,
  settingsFrame,
  windowUpdateFrame,
  writeFrameHeader,
} from "./frames.js";
import { Heartbeat, type HeartbeatSetting } from "./heartbeat.js";
import { NO_TABLE } from "./hpack.js";
import {
  type ClientSocket,
  FirstBytes,
  openSocket,
  type OpenSocket,
  SocketWriter,
  type Target,
} from "./socket.js";
import type { Http2Stream } from "./stream.js";

/**
 * How much the peer may send: RFC 9113, section 6.9. Data is consumed as it arrives, so a window is opened again once half
 * of it is used; answers that are shorter than that need no update of their stream's window. A peer that ignores its windows
 * gains nothing: what bounds the memory are the limits of a message and of all messages of a connection.
 */
const STREAM_WINDOW = 4 * 1024 * 1024;
const CONNECTION_WINDOW = 16 * 1024 * 1024;
/** The window of every connection, and of every stream that no setting widens. */
const INITIAL_WINDOW = 65_535;

/**
 * The first bytes of a connection: RFC 9113, section 3.4. Without a dynamic table each header block of the peer stands
 * alone; the window of the connection, which no setting opens, is opened by a frame of its own.
 */
const GREETING = Buffer.concat([
  Buffer.from(CONNECTION_PREFACE, "latin1"),
  settingsFrame([
    [SETTING.HEADER_TABLE_SIZE, 0],
    [SETTING.ENABLE_PUSH, 0],
    [SETTING.INITIAL_WINDOW_SIZE, STREAM_WINDOW],
    [SETTING.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST_BYTES],
  ]),
  windowUpdateFrame(0, CONNECTION_WINDOW - INITIAL_WINDOW),
]);

/** The last odd number below 2^31: RFC 9113, section 5.1.1. */
const LAST_ID = 0x7fff_ffff;
/** For each DATA frame a peer may widen two windows, in steps; of a stream that was reset, an answer may be on its way. */
const REACTIONS = 4;
/** What a peer has saved up: ten thousand waiters may join at once. */
const MAX_REACTIONS = 40_000;
/** Before the peer has said how many streams it allows: RFC 9113, section 6.5.2, recommends that it be no fewer. */
const EARLY_STREAMS = 100;
/** As long as the longest message. For the whole process, which one server or several could fill. */
const MAX_KEPT_BYTES = 256 * 1024 * 1024;
/** Those that are not over. */
const CONNECTIONS = new Set<Connection>();
const PING_DATA = Buffer.from("leasehld");

export interface ConnectionSetting extends HeartbeatSetting {
  /** For the name, TCP, TLS and the peer's first frame together. */
  readonly connectTimeoutMs: number;
  /** For tests: see `greediest`. */
  readonly maxKeptBytes?: number;
  /** For tests: stream IDs begin here. */
  readonly firstStreamId?: number;
  /** For tests. Default: a socket of Node.js. */
  readonly open?: OpenSocket | undefined;
}

/**
 * One HTTP/2 connection of a client to one peer (RFC 9113). Begins to connect at once; streams that are sent before it has
 * connected wait. It sends their requests as far as the socket, the peer's windows and its limit of streams permit, those of urgent
 * streams first. It never connects again: `usable` tells when new streams need another one.
 */
export class Connection extends Endpoint {
  #state: "connecting" | "greeting" | "open" | "over" = "connecting";
  /** No new streams may be opened on this connection. */
  #draining = false;
  /** Ends as soon as no stream uses it. */
  #retired = false;
  /** Why the peer wants no new streams. */
  #goaway: StreamFailure | undefined;
  #failure: StreamFailure | undefined;
  readonly #connectDeadline: Timer;
  readonly #heartbeat: Heartbeat;
  readonly #socket: ClientSocket;
  readonly #firstBytes = new FirstBytes();
  #writer: SocketWriter | undefined;

  /** Open streams by ID: the peer has not ended them. */
  readonly #streams = new Map<number, Http2Stream>();
  /** Streams that have something to send: the urgent ones, and the others. */
  readonly #queues = [new Set<Http2Stream>(), new Set<Http2Stream>()] as const;
  #nextId: number;
  /** Streams below this ID were opened before the peer's SETTINGS arrived. */
  #earlyEnd = 0;
  readonly #settings = new PeerSettings();
  /** The peer has been told that we use no table. */
  #saidNoTable = false;
  /** Bytes of DATA that the peer accepts on the connection. */
  #sendWindow = INITIAL_WINDOW;
  /** Bytes received since the last WINDOW_UPDATE for the connection. */
  #received = 0;
  /** How many frames that carry nothing may be reactions of the peer to what was sent. */
  #reactions = 0;
  readonly #frameHeader = Buffer.alloc(FRAME_HEADER_BYTES);

  constructor(
    private readonly target: Target,
    private readonly setting: ConnectionSetting,
    private readonly deadlines: Timers,
  ) {
    super(() => deadlines.now());
    this.#nextId = setting.firstStreamId ?? 1;
    this.#heartbeat = new Heartbeat(setting, deadlines, {
      idle: () => this.#idle,
      inUse: () => this.#state === "open" && this.#streams.size > 0,
      ping: () => this.#write(pingFrame(PING_DATA)),
      dead: (silentMs) =>
        this.#fail("lost", `silent for ${Number((silentMs / 1000).toFixed(1))} s, even to a ping`),
    });
    this.#connectDeadline = deadlines.add(setting.connectTimeoutMs, () => this.#connectTimedOut());
    CONNECTIONS.add(this);
    const open = setting.open ?? openSocket;
    this.#socket = open(target, {
      connected: () => this.#greet(),
      data: (chunk) => this.#read(chunk),
      closed: (error, asked) => this.#closed(error, asked === true),
    });
  }

  /** Whether new streams can be opened, now or once the connection is open. A failed connection reports its failure to them. */
  get usable(): boolean {
    return !this.#draining && this.#nextId <= LAST_ID;
  }

  /** What a stream waits for that was sent, and is not opened yet. `undefined`: for the connection to open. */
  get holdUp(): string | undefined {
    if (this.#state !== "open") return undefined;
    const { maxConcurrentStreams } = this.#settings;
    return this.#streams.size < maxConcurrentStreams
      ? "the member does not read what is sent"
      : `the member allows no more streams on a connection (MAX_CONCURRENT_STREAMS: ${maxConcurrentStreams})`;
  }

  /**
   * The stream with the most memory for a message that is not complete, if all open streams of this process together have too much:
   * one server that answers without an end takes no memory from the others.
   */
  get greediest(): Http2Stream | undefined {
    let bytes = 0;
    let most: Http2Stream | undefined;
    for (const connection of CONNECTIONS)
      for (const stream of connection.#streams.values()) {
        bytes += stream.kept;
        if (stream.kept > (most?.kept ?? 0)) most = stream;
      }
    return bytes > (this.setting.maxKeptBytes ?? MAX_KEPT_BYTES) ? most : undefined;
  }

  /** `stream` is new, or has something to send. It does not fail before this call returns. */
  send(stream: Http2Stream): void {
    const failure = this.#failure;
    if (failure !== undefined) return nextTick(() => stream.lost(failure, false));
    this.#writer?.keepAlive(true);
    this.#enqueue(stream);
    this.#heartbeat.used();
  }

  /** The stream is reset: what has been sent of it cannot be called back. */
  cancel(stream: Http2Stream): void {
    if (stream.id !== 0 && this.#state !== "over") {
      this.#write(rstStreamFrame(stream.id, "CANCEL"));
      this.#expectReaction();
    }
    this.finished(stream);
  }

  /** The stream uses the connection no longer. */
  finished(stream: Http2Stream): void {
    this.#remove(stream);
    // The peer may allow only so many streams at a time.
    this.#pump();
    this.#rest();
  }

  /** Closes the connection as soon as no stream uses it. Until then it takes new ones: the watches of a member read on it. */
  retire(): void {
    this.#retired = true;
    this.#rest();
  }

  /** No stream uses the connection, or waits for it. */
  get #idle(): boolean {
    const [urgent, others] = this.#queues;
    return this.#streams.size === 0 && urgent.size === 0 && others.size === 0;
  }

  #rest(): void {
    if (!this.#idle || this.#state === "over") return;
    if (!this.#draining && !this.#retired) return this.#writer?.keepAlive(false);
    if (this.#state === "open") this.#write(goawayFrame(0, "NO_ERROR", ""));
    this.#end(new StreamFailure("retired", "the connection was closed"));
    if (this.#writer === undefined) return void this.#socket.destroy();
    // What was written leaves before the connection does, unless the peer does not read it.
    this.#writer.flush();
    this.#socket.destroySoon();
    this.deadlines.add(this.setting.pingTimeoutMs, () => this.#socket.destroy());
  }

  #write(frame: Buffer): void {
    this.#writer?.write(frame);
  }

  #greet(): void {
    this.#state = "greeting";
    this.#writer = new SocketWriter(this.#socket, this.deadlines, () => this.#pump());
    this.#write(GREETING);
    this.#pump();
  }

  #read(chunk: Buffer): void {
    if (this.#state === "over") return;
    this.#heartbeat.received();
    if (this.#state === "greeting") this.#firstBytes.add(chunk);
    try {
      this.reader.read(chunk);
      if (this.#writer?.overfull)
        throw new Http2Error("ENHANCE_YOUR_CALM", "the peer sends, but does not read");
    } catch (error) {
      if (!(error instanceof Http2Error)) throw error;
      this.#violated(error);
    }
  }

  protected settings(payload: Buffer): void {
    const before = this.#settings.initialWindow;
    this.#settings.apply(payload);
    this.#write(settingsAckFrame());
    // That applies to open streams, too: RFC 9113, section 6.9.2.
    for (const stream of this.#streams.values()) this.#widen(stream, this.#settings.initialWindow - before);
    if (this.#state !== "greeting") return this.#pump();
    this.#state = "open";
    this.#earlyEnd = this.#nextId;
    this.#connectDeadline.cancel();
    this.#pump();
    // Each attempt to connect to one of several addresses makes a new handle, which keeps the process alive.
    this.#rest();
  }

  protected ping(payload: Buffer): void {
    this.#writer?.writeLate(pingAckFrame(payload));
  }

  protected headers(id: number, headers: Headers, endStream: boolean): boolean {
    const stream = this.#known(id);
    stream?.headers(headers, endStream);
    return stream !== undefined || this.#takeReaction();
  }

  protected data({ streamId, payload }: Frame, content: Buffer, endStream: boolean): void {
    const stream = this.#known(streamId);
    this.#consumed(stream, payload.length, endStream);
    if (content.length > 0 || endStream) stream?.data(content, endStream);
  }

  protected reset(id: number, code: ErrorName): boolean {
    const stream = this.#known(id);
    if (stream === undefined) return false;
    this.#remove(stream);
    const refused = code === "REFUSED_STREAM";
    // One that the peer's limit was not known for waits here again.
    stream.lost(resetFailure(code), !refused, refused && id < this.#earlyEnd);
    this.#pump();
    this.#rest();
    return true;
  }

  protected windowUpdate(id: number, bytes: number): boolean {
    if (id === 0) {
      this.#sendWindow = widened(this.#sendWindow, bytes);
      this.#pump();
    } else {
      const stream = this.#known(id);
      if (stream !== undefined) this.#widen(stream, bytes);
    }
    return this.#takeReaction();
  }

  protected goaway(lastId: number, code: ErrorName, debug: string): void {
    // A polite goodbye often follows the complaint.
    if (this.#goaway === undefined || code !== "NO_ERROR") this.#goaway = goawayFailure(code, debug);
    this.#draining = true;
    // Streams above the last ID were not processed, nor those that wait here: RFC 9113, section 6.8.
    for (const stream of this.#users().filter(({ id }) => id === 0 || id > lastId)) {
      this.#remove(stream);
      stream.lost(this.#goaway, false);
    }
    this.#rest();
  }

  /** `undefined` for a stream that is over. @throws {Http2Error} for a stream that was never opened. */
  #known(id: number): Http2Stream | undefined {
    if (id % 2 === 1 && id < this.#nextId) return this.#streams.get(id);
    throw new Http2Error("PROTOCOL_ERROR", `the peer answers on stream ${id}, which was not opened`);
  }

  /** `bytes` of DATA have arrived, for a stream that may be over. */
  #consumed(stream: Http2Stream | undefined, bytes: number, endStream: boolean): void {
    this.#received += bytes;
    if (this.#received > CONNECTION_WINDOW / 2) {
      this.#write(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    if (stream === undefined || endStream) return;
    stream.received += bytes;
    if (stream.received <= STREAM_WINDOW / 2) return;
    this.#write(windowUpdateFrame(stream.id, stream.received));
    stream.received = 0;
  }

  /** Open streams, and those that wait. */
  #users(): Http2Stream[] {
    const queued = this.#queues.flatMap((queue) => [...queue]);
    return [...this.#streams.values(), ...queued.filter(({ id }) => id === 0)];
  }

  #remove(stream: Http2Stream): void {
    if (stream.id !== 0) this.#streams.delete(stream.id);
    this.#queueOf(stream).delete(stream);
  }

  #queueOf(stream: Http2Stream): Set<Http2Stream> {
    return this.#queues[stream.request.method.urgent ? 0 : 1];
  }

  /** The peer accepts `bytes` more on `stream`, or fewer. */
  #widen(stream: Http2Stream, bytes: number): void {
    stream.sendWindow = widened(stream.sendWindow, bytes);
    if (stream.outbox.length > 0) this.#enqueue(stream);
  }

  /** `stream` has something to send. */
  #enqueue(stream: Http2Stream): void {
    const queue = this.#queueOf(stream);
    const isBlocked = stream.id !== 0 && stream.sendWindow <= 0;
    if (isBlocked || queue.has(stream)) return;
    queue.add(stream);
    this.#pump();
  }

  /** Sends what can be sent now. Nothing is sent before the connection is there, or after it has begun to end. */
  #pump(): void {
    for (const queue of this.#queues)
      for (const stream of queue) {
        if (this.#state === "over" || this.#writer === undefined || this.#writer.blocked) return;
        if (this.#send(stream, this.#writer)) queue.delete(stream);
      }
  }

  /** Returns whether `stream` has to wait for nothing but its own window. */
  #send(stream: Http2Stream, writer: SocketWriter): boolean {
    if (stream.id === 0) {
      if (stream.unwanted) return true;
      const refusal = this.#refusalOf(stream);
      if (refusal !== undefined) return this.#refuse(stream, refusal);
      const most = this.#state === "greeting" ? EARLY_STREAMS : this.#settings.maxConcurrentStreams;
      if (this.#streams.size >= most) return false;
      stream.id = this.#nextId;
      this.#nextId += 2;
      stream.sendWindow = this.#settings.initialWindow;
      this.#streams.set(stream.id, stream);
      const { maxFrameSize } = this.#settings;
      const { block } = stream.request.headers;
      const whole = this.#saidNoTable ? block : Buffer.concat([NO_TABLE, block]);
      this.#saidNoTable = true;
      writer.write(headersFrames(stream.id, whole, { endStream: false, maxFrameSize }));
      stream.opened();
    }
    // The caller may have cancelled the stream when it was opened.
    while (!stream.over && stream.outbox.length > 0 && stream.sendWindow > 0) {
      if (this.#sendWindow <= 0) return false;
      this.#sendData(stream, writer);
    }
    return true;
  }

  /** Why `stream` will never be opened: others used the last IDs while it waited here, or the peer would not read its headers. */
  #refusalOf({ request }: Http2Stream): StreamFailure | undefined {
    if (this.#nextId > LAST_ID)
      return new StreamFailure("retired", "all stream IDs of the connection are used");
    const { maxHeaderListSize } = this.#settings;
    const { listBytes } = request.headers;
    if (listBytes <= maxHeaderListSize) return undefined;
    return tooLong(maxHeaderListSize, listBytes);
  }

  #refuse(stream: Http2Stream, refusal: StreamFailure): true {
    this.#remove(stream);
    nextTick(() => stream.lost(refusal, false));
    return true;
  }

  /** One DATA frame, as long as permitted. */
  #sendData(stream: Http2Stream, writer: SocketWriter): void {
    const message = stream.outbox[0]!;
    const start = stream.sentOfFirst;
    const most = Math.min(this.#sendWindow, stream.sendWindow, this.#settings.maxFrameSize);
    const end = Math.min(message.length, start + most);
    const length = end - start;
    const whole = end === message.length;
    const flags = whole && message === stream.request.message ? FLAG.END_STREAM : 0;
    writeFrameHeader(this.#frameHeader, 0, { type: FRAME.DATA, flags, streamId: stream.id, length });
    writer.write(this.#frameHeader);
    writer.write(start === 0 && whole ? message : message.subarray(start, end));
    this.#expectReaction();
    this.#sendWindow -= length;
    stream.sendWindow -= length;
    stream.sentOfFirst = whole ? 0 : end;
    if (whole) stream.outbox.shift();
  }

  /** The peer may react to what was sent just now, by frames that carry nothing else. */
  #expectReaction(): void {
    this.#reactions = Math.min(this.#reactions + REACTIONS, MAX_REACTIONS);
  }

  /** Whether a frame that carries nothing may be such a reaction. */
  #takeReaction(): boolean {
    return this.#reactions > 0 && this.#reactions-- > 0;
  }

  #connectTimedOut(): void {
    const what = this.#state === "greeting" ? "no HTTP/2 from the member" : "no connection";
    if (this.#goaway !== undefined) {
      this.#end(this.#goaway);
      return void this.#socket.destroy();
    }
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

  /** Every stream ends with `failure`; the peer may have processed those that were opened, unless it has not read them. */
  #end(failure: StreamFailure): void {
    if (this.#state === "over") return;
    const isUnread =
      this.#firstBytes.hint !== undefined || (this.#state === "greeting" && isTlsVerdict(failure.cause));
    // The loss of an idle connection is no failure of the member: the next stream gets a new connection.
    if (this.#retired || (this.#state === "open" && this.#idle)) this.#draining = true;
    this.#state = "over";
    CONNECTIONS.delete(this);
    this.#failure = failure;
    this.#connectDeadline.cancel();
    this.#heartbeat.stop();
    const streams = this.#users();
    for (const stream of streams) this.#remove(stream);
    for (const stream of streams) stream.lost(failure, stream.id !== 0 && !isUnread);
  }
}

function widened(window: number, bytes: number): number {
  if (window + bytes <= MAX_WINDOW) return window + bytes;
  throw new Http2Error("FLOW_CONTROL_ERROR", "the peer's window exceeds 2^31-1 bytes");
}
