import { FLAG, FRAME_HEADER_BYTES } from "./frames.js";
import { Http2Error } from "./http2-error.js";

/** A frame of the peer. The object and the memory of its payload are valid only while the handler runs. */
export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

export interface FrameHandler {
  /** Called for each frame, also for one of an unknown type. What it throws ends `FrameReader.read`. */
  frame(frame: Frame): void;
}

const NO_BYTES = Buffer.alloc(0);
const PRIORITY_BYTES = 5;

/**
 * Splits what a peer sends into frames (RFC 9113 section 4.1). A frame that is complete in a chunk is not copied: its
 * payload is a part of the chunk. Only a frame whose end has not arrived is kept. After `read` has thrown, the rest of
 * the connection cannot be read.
 */
export class FrameReader {
  /** One object for all frames. */
  readonly #frame: { -readonly [Field in keyof Frame]: Frame[Field] } = {
    type: 0,
    flags: 0,
    streamId: 0,
    payload: NO_BYTES,
  };
  readonly #keptHeader = Buffer.alloc(FRAME_HEADER_BYTES);
  /** The start of a frame whose end has not arrived: `#keptHeader`, or memory for the whole frame. */
  #kept: Buffer = this.#keptHeader;
  #keptBytes = 0;

  constructor(
    private readonly handler: FrameHandler,
    /** The greatest payload that the peer may send: our SETTINGS_MAX_FRAME_SIZE. */
    private readonly maxFrameBytes: number,
  ) {}

  read(chunk: Buffer): void {
    let at = this.#keptBytes === 0 ? 0 : this.#keep(chunk, 0);
    while (chunk.length - at >= FRAME_HEADER_BYTES) {
      const end = at + FRAME_HEADER_BYTES + this.#lengthAt(chunk, at);
      if (end > chunk.length) break;
      this.#deliver(chunk, at, end);
      at = end;
    }
    if (at < chunk.length) this.#keep(chunk, at);
    // An idle connection must not keep the chunk in memory.
    this.#frame.payload = NO_BYTES;
  }

  /** Continues the kept frame with the bytes from `start`, delivers it if it is complete, and returns where it ends. */
  #keep(chunk: Buffer, start: number): number {
    let at = this.#copy(chunk, start);
    if (this.#keptBytes === FRAME_HEADER_BYTES) {
      this.#makeRoom();
      at = this.#copy(chunk, at);
    }
    if (this.#keptBytes < this.#kept.length) return at;
    const whole = this.#kept;
    this.#kept = this.#keptHeader;
    this.#keptBytes = 0;
    this.#deliver(whole, 0, whole.length);
    return at;
  }

  /** Fills the kept memory with the bytes from `start`, and returns where the rest of them begins. */
  #copy(chunk: Buffer, start: number): number {
    const copied = chunk.copy(this.#kept, this.#keptBytes, start);
    this.#keptBytes += copied;
    return start + copied;
  }

  /** The header is complete: allocates the memory for the payload, which the limit bounds. */
  #makeRoom(): void {
    const length = this.#lengthAt(this.#keptHeader, 0);
    if (length === 0) return;
    this.#kept = Buffer.allocUnsafe(FRAME_HEADER_BYTES + length);
    this.#keptHeader.copy(this.#kept);
  }

  #lengthAt(bytes: Buffer, at: number): number {
    const length = bytes.readUIntBE(at, 3);
    if (length <= this.maxFrameBytes) return length;
    throw new Http2Error(
      "FRAME_SIZE_ERROR",
      `the peer sent a frame of ${length} bytes: at most ${this.maxFrameBytes} are allowed`,
    );
  }

  #deliver(bytes: Buffer, start: number, end: number): void {
    const frame = this.#frame;
    frame.type = bytes[start + 3]!;
    frame.flags = bytes[start + 4]!;
    // The first bit is reserved and ignored.
    frame.streamId = bytes.readUInt32BE(start + 5) & 0x7fffffff;
    frame.payload = bytes.subarray(start + FRAME_HEADER_BYTES, end);
    this.handler.frame(frame);
  }
}

/** The content of a DATA frame without its padding (RFC 9113 section 6.1). */
export function dataOf(frame: Frame): Buffer {
  needStream(frame, "DATA");
  return contentOf(frame, 0);
}

/** The part of a header block in a HEADERS frame: without padding and priority fields (RFC 9113 section 6.2). */
export function headerBlockOf(frame: Frame): Buffer {
  needStream(frame, "HEADERS");
  return contentOf(frame, frame.flags & FLAG.PRIORITY ? PRIORITY_BYTES : 0);
}

function needStream({ streamId }: Frame, type: string): void {
  if (streamId === 0) throw new Http2Error("PROTOCOL_ERROR", `the peer sent a ${type} frame on stream 0`);
}

/** What is between the padding and the fields in front: the length of the padding, and as many bytes as `fields` says. */
function contentOf({ flags, payload }: Frame, fields: number): Buffer {
  const isPadded = (flags & FLAG.PADDED) !== 0;
  const start = isPadded ? fields + 1 : fields;
  if (start === 0) return payload;
  if (payload.length < start) {
    throw new Http2Error("FRAME_SIZE_ERROR", "the peer sent a frame that is too short for its fields");
  }
  const end = isPadded ? payload.length - payload[0]! : payload.length;
  if (end < start) throw new Http2Error("PROTOCOL_ERROR", "the peer sent a frame with too much padding");
  return payload.subarray(start, end);
}
