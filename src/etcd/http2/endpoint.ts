import {
  dataOf,
  type ErrorName,
  errorNameOf,
  FLAG,
  type Frame,
  FRAME,
  type FrameHandler,
  FrameReader,
  headerBlockOf,
  Http2Error,
  MAX_WINDOW,
} from "./frames.js";
import { HeaderDecoder } from "./hpack.js";

/** The headers of a request or a response, or trailers. */
export type Headers = ReadonlyMap<string, string>;

/** The longest frame that a peer may send without our leave: RFC 9113, section 4.2. */
const MAX_FRAME_BYTES = 16_384;
/** Response headers and trailers of etcd have some hundred bytes. */
export const MAX_HEADER_LIST_BYTES = 64 * 1024;
/** A header block may be cut into any number of frames, also empty ones (CVE-2024-27316). */
const MAX_HEADER_FRAMES = 64;
/**
 * More frames that carry nothing than a peer with good intentions sends in a second without an answer between them
 * (CVE-2019-9512 to 9518). Go's gRPC servers ping with almost every answer.
 */
const MAX_IDLE_FRAMES = 1000;

/**
 * One end of an HTTP/2 connection, as it reads: checks the peer's frames against RFC 9113, section 6, joins header blocks, and
 * limits what a hostile peer can cost. A subclass does what the frames say.
 */
export abstract class Endpoint implements FrameHandler {
  /** The reader, whose `read` throws an `Http2Error` if the peer violates the protocol. */
  protected readonly reader = new FrameReader(this, MAX_FRAME_BYTES);
  readonly #decoder = new HeaderDecoder(MAX_HEADER_LIST_BYTES);
  /** A header block whose end has not arrived. */
  #block:
    | { readonly streamId: number; readonly endStream: boolean; readonly parts: Buffer[]; bytes: number }
    | undefined;
  #begun = false;
  #idleFrames = 0;
  #idleSince = 0;

  constructor(private readonly now: () => number) {}

  /** Returns whether the stream was open, or was until this side ended it. */
  protected abstract headers(streamId: number, headers: Headers, endStream: boolean): boolean;
  /** `content`: the payload without its padding, which counts for flow control. */
  protected abstract data(frame: Frame, content: Buffer, endStream: boolean): void;
  /** Returns whether the stream was open. */
  protected abstract reset(streamId: number, code: ErrorName): boolean;
  protected abstract settings(payload: Buffer): void;
  protected abstract ping(payload: Buffer): void;
  protected abstract goaway(lastId: number, code: ErrorName, debug: string): void;
  /** Returns whether the peer had something to make room for. */
  protected abstract windowUpdate(streamId: number, bytes: number): boolean;

  /** `FrameReader` alone calls it. */
  frame(frame: Frame): void {
    if (!this.#begun) {
      // A server that cannot serve now, as it is full or ends, may say so first.
      if (frame.type === FRAME.GOAWAY) return this.#control(frame);
      this.#begin(frame);
    }
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
    this.data(frame, content, endStream);
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
    if (!this.headers(streamId, headers, endStream) || isInterim) this.#countIdle();
  }

  #reset({ streamId, payload }: Frame): void {
    if (payload.length !== 4) throw wrongSize("RST_STREAM");
    if (streamId === 0) throw new Http2Error("PROTOCOL_ERROR", "the peer resets stream 0");
    // The end of an open stream is news, however many end at once.
    if (!this.reset(streamId, errorNameOf(payload.readUInt32BE(0)))) this.#countIdle();
  }

  #windowUpdate({ streamId, payload }: Frame): void {
    if (payload.length !== 4) throw wrongSize("WINDOW_UPDATE");
    const bytes = payload.readUInt32BE(0) & MAX_WINDOW;
    if (bytes === 0) throw new Http2Error("PROTOCOL_ERROR", "the peer widens a window by nothing");
    if (!this.windowUpdate(streamId, bytes)) this.#countIdle();
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
    if (type === FRAME.SETTINGS && ack && payload.length > 0)
      throw wrongSize("an acknowledgment of SETTINGS");
    if (ack) return;
    if (type === FRAME.PING) this.ping(payload);
    else this.settings(payload);
  }

  #goaway(payload: Buffer): void {
    if (payload.length < 8) throw wrongSize("GOAWAY");
    const lastId = payload.readUInt32BE(0) & MAX_WINDOW;
    const debug = payload.toString("latin1", 8, Math.min(payload.length, 8 + 200));
    this.goaway(lastId, errorNameOf(payload.readUInt32BE(4)), debug);
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
