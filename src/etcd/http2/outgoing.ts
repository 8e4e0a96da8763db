import {
  FLAG,
  FRAME,
  FRAME_HEADER_BYTES,
  headersFrames,
  Http2Error,
  MAX_WINDOW,
  type PeerSettings,
  writeFrameHeader,
} from "./frames.js";
import type { SocketWriter } from "./socket.js";
import { type Http2Stream, StreamFailure } from "./stream.js";

/** The last odd number below 2^31: RFC 9113, section 5.1.1. */
const LAST_ID = 0x7fff_ffff;

/** For each DATA frame a peer may widen two windows, in steps; of a stream that was reset, an answer may be on its way. */
const REACTIONS = 4;
/** What a peer has saved up: ten thousand waiters may join at once. */
const MAX_REACTIONS = 40_000;

/**
 * Sends the requests of one connection as far as the socket, the peer's windows and its limit of streams permit, those
 * of urgent streams first.
 */
export class Outgoing {
  /** Streams that the peer has not ended, by ID. */
  readonly streams = new Map<number, Http2Stream>();
  readonly #urgent = new Set<Http2Stream>();
  readonly #others = new Set<Http2Stream>();
  readonly #frameHeader = Buffer.alloc(FRAME_HEADER_BYTES);
  /** Bytes of DATA that the peer accepts on the connection. */
  #window = 65_535;
  #reactions = 0;
  /** Nothing is sent before the connection is open, or after it has begun to end. */
  #writer: SocketWriter | undefined;

  constructor(
    private readonly settings: PeerSettings,
    private nextId: number,
  ) {}

  /** No further stream can be opened: a new connection is needed. */
  get exhausted(): boolean {
    return this.nextId > LAST_ID;
  }

  /** `undefined` for a stream that is over. @throws {Http2Error} for a stream that was never opened. */
  known(id: number): Http2Stream | undefined {
    if (id % 2 === 1 && id < this.nextId) return this.streams.get(id);
    throw new Http2Error("PROTOCOL_ERROR", `the peer answers on stream ${id}, which was not opened`);
  }

  /** No stream uses the connection, or waits for it. */
  get idle(): boolean {
    return this.streams.size === 0 && this.#urgent.size === 0 && this.#others.size === 0;
  }

  /** Streams that wait for the connection, or for the peer's permission, and are not opened yet. */
  *unopened(): Iterable<Http2Stream> {
    for (const queue of [this.#urgent, this.#others])
      for (const stream of queue) if (stream.id === 0) yield stream;
  }

  /** Why a stream has to wait although the connection is open. */
  get holdUp(): string {
    const { maxConcurrentStreams } = this.settings;
    return this.streams.size < maxConcurrentStreams
      ? "the member does not read what is sent"
      : `the member allows no more streams on a connection (MAX_CONCURRENT_STREAMS: ${maxConcurrentStreams})`;
  }

  /** The peer may react to what was sent just now, by frames that carry nothing else. */
  expectReaction(): void {
    this.#reactions = Math.min(this.#reactions + REACTIONS, MAX_REACTIONS);
  }

  /** Whether a frame that carries nothing may be such a reaction. */
  takeReaction(): boolean {
    return this.#reactions > 0 && this.#reactions-- > 0;
  }

  /** The connection is open. */
  begin(writer: SocketWriter): void {
    this.#writer = writer;
    this.pump();
  }

  /** `stream` has something to send. */
  add(stream: Http2Stream): void {
    if (stream.queued || this.#isBlocked(stream)) return;
    stream.queued = true;
    (stream.urgent ? this.#urgent : this.#others).add(stream);
    this.pump();
  }

  remove(stream: Http2Stream): void {
    if (stream.id !== 0) this.streams.delete(stream.id);
    this.#unqueue(stream);
  }

  /** The connection is over: removes the streams that used it or waited for it, and returns them. */
  close(): Http2Stream[] {
    this.#writer = undefined;
    const streams = [...this.streams.values(), ...this.unopened()];
    for (const stream of streams) this.remove(stream);
    return streams;
  }

  /** The peer accepts `bytes` more on the connection. */
  widen(bytes: number): void {
    this.#window = widened(this.#window, bytes);
    this.pump();
  }

  /** The peer accepts `bytes` more on `stream`. */
  widenStream(stream: Http2Stream, bytes: number): void {
    stream.sendWindow = widened(stream.sendWindow, bytes);
    if (stream.outbox.length > 0) this.add(stream);
  }

  /** The peer has changed its initial window by `bytes`: that applies to open streams, too (RFC 9113, section 6.9.2). */
  shiftWindows(bytes: number): void {
    for (const stream of this.streams.values()) this.widenStream(stream, bytes);
  }

  /** Sends what can be sent now. */
  pump(): void {
    for (const queue of [this.#urgent, this.#others]) {
      for (const stream of queue) {
        if (this.#writer === undefined || this.#writer.blocked) return;
        if (this.#send(stream, this.#writer)) this.#unqueue(stream);
      }
    }
  }

  #isBlocked(stream: Http2Stream): boolean {
    return stream.id !== 0 && stream.sendWindow <= 0;
  }

  #unqueue(stream: Http2Stream): void {
    if (!stream.queued) return;
    stream.queued = false;
    (stream.urgent ? this.#urgent : this.#others).delete(stream);
  }

  /** Returns whether `stream` has to wait for nothing but its own window. */
  #send(stream: Http2Stream, writer: SocketWriter): boolean {
    if (stream.id === 0 && !this.#open(stream, writer)) return false;
    // `sent()` may have cancelled the stream.
    while (!stream.over && stream.outbox.length > 0 && stream.sendWindow > 0) {
      if (this.#window <= 0) return false;
      this.#sendData(stream, writer);
    }
    return true;
  }

  /** Returns whether the stream waits for the peer's permission no longer. */
  #open(stream: Http2Stream, writer: SocketWriter): boolean {
    if (this.exhausted) return this.#refuse(stream);
    if (this.streams.size >= this.settings.maxConcurrentStreams) return false;
    stream.id = this.nextId;
    this.nextId += 2;
    stream.sendWindow = this.settings.initialWindow;
    this.streams.set(stream.id, stream);
    const { maxFrameSize } = this.settings;
    writer.write(headersFrames(stream.id, stream.headerBlock, { endStream: false, maxFrameSize }));
    stream.sent();
    return true;
  }

  /** The stream waited here while others used the last IDs. */
  #refuse(stream: Http2Stream): true {
    this.#unqueue(stream);
    stream.failed(new StreamFailure("retired", "all stream IDs of the connection are used"), false);
    return true;
  }

  /** One DATA frame, as long as permitted. */
  #sendData(stream: Http2Stream, writer: SocketWriter): void {
    const message = stream.outbox[0]!;
    const start = stream.sentOfFirst;
    const most = Math.min(this.#window, stream.sendWindow, this.settings.maxFrameSize);
    const end = Math.min(message.length, start + most);
    const whole = end === message.length;
    const last = whole && stream.outbox.length === 1 && stream.endsWithOutbox;
    const flags = last ? FLAG.END_STREAM : 0;
    writeFrameHeader(this.#frameHeader, 0, {
      type: FRAME.DATA,
      flags,
      streamId: stream.id,
      length: end - start,
    });
    writer.write(this.#frameHeader);
    writer.write(start === 0 && whole ? message : message.subarray(start, end));
    this.expectReaction();
    this.#window -= end - start;
    stream.sendWindow -= end - start;
    stream.sentOfFirst = whole ? 0 : end;
    if (whole) stream.outbox.shift();
  }
}

function widened(window: number, bytes: number): number {
  if (window + bytes <= MAX_WINDOW) return window + bytes;
  throw new Http2Error("FLOW_CONTROL_ERROR", "the peer's window exceeds 2^31-1 bytes");
}
