import {
  dataOf,
  type ErrorName,
  errorNameOf,
  FLAG,
  type Frame,
  FRAME,
  type FrameHandler,
  headerBlockOf,
  Http2Error,
  MAX_WINDOW,
} from "./frames.js";
import { HeaderDecoder } from "./hpack.js";
import type { Headers, Http2Stream } from "./stream.js";

/**
 * How much the peer may send: RFC 9113, section 6.9. Data is consumed as it arrives, so a window is opened again once half
 * of it is used; answers that are shorter than that need no update of their stream's window. A peer that ignores its windows
 * gains nothing: what bounds the memory are the limits of a message and of all messages of a connection.
 */
export class ReceiveWindows {
  static readonly INITIAL_BYTES = 65_535;
  static readonly STREAM_BYTES = 4 * 1024 * 1024;
  static readonly CONNECTION_BYTES = 16 * 1024 * 1024;
  #used = 0;

  constructor(private readonly update: (streamId: number, bytes: number) => void) {}

  /** `stream` is `undefined` if it is over. */
  received(stream: Http2Stream | undefined, bytes: number, endStream: boolean): void {
    this.#used += bytes;
    if (this.#used > ReceiveWindows.CONNECTION_BYTES / 2) {
      this.update(0, this.#used);
      this.#used = 0;
    }
    if (stream === undefined || endStream) return;
    stream.received += bytes;
    if (stream.received <= ReceiveWindows.STREAM_BYTES / 2) return;
    this.update(stream.id, stream.received);
    stream.received = 0;
  }
}

/** Response headers and trailers of etcd have some hundred bytes. */
export const MAX_HEADER_LIST_BYTES = 64 * 1024;
/** A header block may be cut into any number of frames, also empty ones (CVE-2024-27316). */
const MAX_HEADER_FRAMES = 64;
/**
 * More frames that carry nothing than a peer with good intentions sends in a second without an answer between them
 * (CVE-2019-9512 to 9518). Go's gRPC servers ping with almost every answer.
 */
const MAX_IDLE_FRAMES = 1000;

/** What the frames of a peer mean. */
interface PeerEvents {
  /** Returns whether the stream was open, or was until this side ended it. */
  headers(streamId: number, headers: Headers, endStream: boolean): boolean;
  /** `bytes`: with padding, which counts for flow control. */
  data(
    streamId: number,
    data: { readonly content: Buffer; readonly bytes: number; readonly endStream: boolean },
  ): void;
  /** Returns whether the stream was open. */
  reset(streamId: number, code: ErrorName): boolean;
  settings(payload: Buffer): void;
  ping(payload: Buffer): void;
  /** The peer has answered a PING of ours. */
  pong(): void;
  goaway(lastId: number, code: ErrorName, debug: string): void;
  /** Returns whether the peer had something to make room for. */
  windowUpdate(streamId: number, bytes: number): boolean;
}

/** Checks the frames of a peer against RFC 9113, section 6, joins header blocks, and limits what a hostile peer can cost. */
export class Incoming implements FrameHandler {
  readonly #decoder = new HeaderDecoder(MAX_HEADER_LIST_BYTES);
  /** A header block whose end has not arrived. */
  #block:
    | { readonly streamId: number; readonly endStream: boolean; readonly parts: Buffer[]; bytes: number }
    | undefined;
  #begun = false;
  #idleFrames = 0;
  #idleSince = 0;

  constructor(
    private readonly peer: PeerEvents,
    private readonly now: () => number,
  ) {}

  /** @throws {Http2Error} if the peer violates the protocol. */
  frame(frame: Frame): void {
    if (!this.#begun) this.#begin(frame);
    if (
      this.#block !== undefined &&
      (frame.type !== FRAME.CONTINUATION || frame.streamId !== this.#block.streamId)
    )
      throw new Http2Error("PROTOCOL_ERROR", "the peer sends another frame in the middle of a header block");
    switch (frame.type) {
      case FRAME.DATA:
        return this.#data(frame);
      case FRAME.HEADERS:
        return this.#headers(frame);
      case FRAME.CONTINUATION:
        return this.#continuation(frame);
      case FRAME.WINDOW_UPDATE:
        return this.#windowUpdate(frame);
      case FRAME.RST_STREAM:
        return this.#reset(frame);
      default:
        this.#countIdle();
        return this.#control(frame);
    }
  }

  #begin(frame: Frame): void {
    if (frame.type !== FRAME.SETTINGS || (frame.flags & FLAG.ACK) !== 0)
      throw new Http2Error(
        "PROTOCOL_ERROR",
        "the peer does not begin with SETTINGS: it does not speak HTTP/2",
      );
    this.#begun = true;
  }

  #data(frame: Frame): void {
    const content = dataOf(frame);
    const endStream = (frame.flags & FLAG.END_STREAM) !== 0;
    if (content.length === 0 && !endStream) this.#countIdle();
    else this.#idleFrames = 0;
    this.peer.data(frame.streamId, { content, bytes: frame.payload.length, endStream });
  }

  #headers(frame: Frame): void {
    const block = headerBlockOf(frame);
    const endStream = (frame.flags & FLAG.END_STREAM) !== 0;
    if ((frame.flags & FLAG.END_HEADERS) !== 0) return this.#complete(frame.streamId, block, endStream);
    this.#block = { streamId: frame.streamId, endStream, parts: [Buffer.from(block)], bytes: block.length };
  }

  #continuation({ payload, flags }: Frame): void {
    const block = this.#block;
    if (block === undefined) throw new Http2Error("PROTOCOL_ERROR", "the peer continues no header block");
    block.parts.push(Buffer.from(payload));
    block.bytes += payload.length;
    if (block.bytes > MAX_HEADER_LIST_BYTES || block.parts.length > MAX_HEADER_FRAMES)
      throw new Http2Error("ENHANCE_YOUR_CALM", "the peer sends headers without an end");
    if ((flags & FLAG.END_HEADERS) === 0) return;
    this.#block = undefined;
    this.#complete(block.streamId, Buffer.concat(block.parts), block.endStream);
  }

  #complete(streamId: number, block: Buffer, endStream: boolean): void {
    const headers = this.#decoder.decode(block);
    // An interim response (RFC 9113, section 8.1) tells nothing.
    const isInterim = headers.get(":status")?.startsWith("1") === true;
    if (!this.peer.headers(streamId, headers, endStream) || isInterim) this.#countIdle();
  }

  #reset({ streamId, payload }: Frame): void {
    if (payload.length !== 4) throw wrongSize("RST_STREAM");
    if (streamId === 0) throw new Http2Error("PROTOCOL_ERROR", "the peer resets stream 0");
    // The end of an open stream is news, however many end at once.
    if (!this.peer.reset(streamId, errorNameOf(payload.readUInt32BE(0)))) this.#countIdle();
  }

  #windowUpdate({ streamId, payload }: Frame): void {
    if (payload.length !== 4) throw wrongSize("WINDOW_UPDATE");
    const bytes = payload.readUInt32BE(0) & MAX_WINDOW;
    if (bytes === 0) throw new Http2Error("PROTOCOL_ERROR", "the peer widens a window by nothing");
    if (!this.peer.windowUpdate(streamId, bytes)) this.#countIdle();
  }

  /** Frames of the connection. PRIORITY, and types that are not known, are ignored: RFC 9113, sections 5.3 and 4.1. */
  #control({ type, flags, streamId, payload }: Frame): void {
    if (type === FRAME.PUSH_PROMISE) throw new Http2Error("PROTOCOL_ERROR", "the peer pushes");
    if (type !== FRAME.SETTINGS && type !== FRAME.PING && type !== FRAME.GOAWAY) return;
    if (streamId !== 0)
      throw new Http2Error("PROTOCOL_ERROR", "the peer sends a connection's frame on a stream");
    const ack = (flags & FLAG.ACK) !== 0;
    if (type === FRAME.GOAWAY) return this.#goaway(payload);
    if (type === FRAME.PING && payload.length !== 8) throw wrongSize("PING");
    if (type === FRAME.PING) return ack ? this.peer.pong() : this.peer.ping(payload);
    if (ack && payload.length > 0) throw wrongSize("an acknowledgment of SETTINGS");
    if (!ack) this.peer.settings(payload);
  }

  #goaway(payload: Buffer): void {
    if (payload.length < 8) throw wrongSize("GOAWAY");
    const lastId = payload.readUInt32BE(0) & MAX_WINDOW;
    const debug = payload.toString("latin1", 8, Math.min(payload.length, 8 + 200));
    this.peer.goaway(lastId, errorNameOf(payload.readUInt32BE(4)), debug);
  }

  #countIdle(): void {
    if (++this.#idleFrames <= MAX_IDLE_FRAMES) return;
    const now = this.now();
    if (now - this.#idleSince < 1000)
      throw new Http2Error("ENHANCE_YOUR_CALM", "the peer sends frame after frame that carry nothing");
    this.#idleFrames = 0;
    this.#idleSince = now;
  }
}

const wrongSize = (what: string): Http2Error =>
  new Http2Error("FRAME_SIZE_ERROR", `the peer sends ${what} of a wrong size`);
