// The frames of HTTP/2 (RFC 9113, sections 4 and 6). Pure: no socket, no state of a connection. Whatever bytes the peer
// sends, a reader either takes them or throws an `Http2Error` with the code to send to the peer.

/** The error codes of RST_STREAM and GOAWAY (RFC 9113 section 7). */
const ERROR_CODES = {
  NO_ERROR: 0x0,
  PROTOCOL_ERROR: 0x1,
  INTERNAL_ERROR: 0x2,
  FLOW_CONTROL_ERROR: 0x3,
  SETTINGS_TIMEOUT: 0x4,
  STREAM_CLOSED: 0x5,
  FRAME_SIZE_ERROR: 0x6,
  REFUSED_STREAM: 0x7,
  CANCEL: 0x8,
  COMPRESSION_ERROR: 0x9,
  CONNECT_ERROR: 0xa,
  ENHANCE_YOUR_CALM: 0xb,
  INADEQUATE_SECURITY: 0xc,
  HTTP_1_1_REQUIRED: 0xd,
} as const;

export type ErrorName = keyof typeof ERROR_CODES;

const NAMES = new Map(Object.entries(ERROR_CODES).map(([name, code]) => [code as number, name as ErrorName]));

/** The name of a code that the peer sent. An unknown code counts as INTERNAL_ERROR, which RFC 9113 section 7 permits. */
export const errorNameOf = (code: number): ErrorName => NAMES.get(code) ?? "INTERNAL_ERROR";

/** The peer violates HTTP/2 or exceeds a limit. The code is the one to tell it. */
export class Http2Error extends Error {
  override readonly name = "Http2Error";

  constructor(
    readonly code: ErrorName,
    message: string,
  ) {
    super(message);
  }
}

/** The frames of HTTP/2 (RFC 9113 sections 4 and 6) that a client sends, and the numbers in them. */

/** What a client sends before its first frame (RFC 9113 section 3.4). */
export const CONNECTION_PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

export const FRAME = {
  DATA: 0x0,
  HEADERS: 0x1,
  PRIORITY: 0x2,
  RST_STREAM: 0x3,
  SETTINGS: 0x4,
  PUSH_PROMISE: 0x5,
  PING: 0x6,
  GOAWAY: 0x7,
  WINDOW_UPDATE: 0x8,
  CONTINUATION: 0x9,
} as const;

/** `ACK` is a flag of SETTINGS and PING, the others are flags of DATA, HEADERS and CONTINUATION. */
export const FLAG = { ACK: 0x1, END_STREAM: 0x1, END_HEADERS: 0x4, PADDED: 0x8, PRIORITY: 0x20 } as const;

export const SETTING = {
  HEADER_TABLE_SIZE: 0x1,
  ENABLE_PUSH: 0x2,
  MAX_CONCURRENT_STREAMS: 0x3,
  INITIAL_WINDOW_SIZE: 0x4,
  MAX_FRAME_SIZE: 0x5,
  MAX_HEADER_LIST_SIZE: 0x6,
} as const;

/** The size of the header of every frame, and so of what `writeFrameHeader` writes. */
export const FRAME_HEADER_BYTES = 9;
const SETTING_BYTES = 6;
const PING_BYTES = 8;

interface FrameHeader {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  /** The size of the payload: below 2^24. */
  readonly length: number;
}

/** Writes the header of a frame (RFC 9113 section 4.1). The caller writes the payload behind it. */
export function writeFrameHeader(target: Buffer, offset: number, header: FrameHeader): void {
  const { length, streamId } = header;
  target[offset] = length >>> 16;
  target[offset + 1] = length >>> 8;
  target[offset + 2] = length;
  target[offset + 3] = header.type;
  target[offset + 4] = header.flags;
  target[offset + 5] = streamId >>> 24;
  target[offset + 6] = streamId >>> 16;
  target[offset + 7] = streamId >>> 8;
  target[offset + 8] = streamId;
}

/** A frame whose payload is zero until the caller writes it. */
function newFrame(header: FrameHeader): Buffer {
  const frame = Buffer.alloc(FRAME_HEADER_BYTES + header.length);
  writeFrameHeader(frame, 0, header);
  return frame;
}

/** SETTINGS (RFC 9113 section 6.5) with pairs of a `SETTING` and its value. */
export function settingsFrame(settings: readonly (readonly [id: number, value: number])[]): Buffer {
  const length = SETTING_BYTES * settings.length;
  const frame = newFrame({ type: FRAME.SETTINGS, flags: 0, streamId: 0, length });
  let at = FRAME_HEADER_BYTES;
  for (const [id, value] of settings) {
    frame.writeUInt16BE(id, at);
    frame.writeUInt32BE(value, at + 2);
    at += SETTING_BYTES;
  }
  return frame;
}

/** Acknowledges the peer's SETTINGS (RFC 9113 section 6.5.3). */
export const settingsAckFrame = (): Buffer =>
  newFrame({ type: FRAME.SETTINGS, flags: FLAG.ACK, streamId: 0, length: 0 });

/** PING (RFC 9113 section 6.7). The peer returns the 8 bytes. */
export const pingFrame = (data: Buffer): Buffer => ping(data, 0);

/** Answers a PING with the 8 bytes of its payload (RFC 9113 section 6.7). */
export const pingAckFrame = (data: Buffer): Buffer => ping(data, FLAG.ACK);

function ping(data: Buffer, flags: number): Buffer {
  if (data.length !== PING_BYTES) throw new RangeError(`a PING has ${PING_BYTES} bytes, not ${data.length}`);
  const frame = newFrame({ type: FRAME.PING, flags, streamId: 0, length: PING_BYTES });
  data.copy(frame, FRAME_HEADER_BYTES);
  return frame;
}

/** WINDOW_UPDATE (RFC 9113 section 6.9) of a stream, or with 0 of the connection. */
export function windowUpdateFrame(streamId: number, increment: number): Buffer {
  const frame = newFrame({ type: FRAME.WINDOW_UPDATE, flags: 0, streamId, length: 4 });
  frame.writeUInt32BE(increment, FRAME_HEADER_BYTES);
  return frame;
}

/** RST_STREAM (RFC 9113 section 6.4). */
export function rstStreamFrame(streamId: number, code: ErrorName): Buffer {
  const frame = newFrame({ type: FRAME.RST_STREAM, flags: 0, streamId, length: 4 });
  frame.writeUInt32BE(ERROR_CODES[code], FRAME_HEADER_BYTES);
  return frame;
}

/** GOAWAY (RFC 9113 section 6.8). `debug` is a text for the peer's log. */
export function goawayFrame(lastStreamId: number, code: ErrorName, debug: string): Buffer {
  const text = Buffer.from(debug);
  const frame = newFrame({ type: FRAME.GOAWAY, flags: 0, streamId: 0, length: 8 + text.length });
  frame.writeUInt32BE(lastStreamId, FRAME_HEADER_BYTES);
  frame.writeUInt32BE(ERROR_CODES[code], FRAME_HEADER_BYTES + 4);
  text.copy(frame, FRAME_HEADER_BYTES + 8);
  return frame;
}

interface HeadersOptions {
  readonly endStream: boolean;
  /** The peer's SETTINGS_MAX_FRAME_SIZE. */
  readonly maxFrameSize: number;
}

/**
 * HEADERS (RFC 9113 section 6.2) with a header block, followed by as many CONTINUATION frames (section 6.10) as the block
 * needs. They have to be sent with no other frame between them.
 */
export function headersFrames(streamId: number, block: Buffer, options: HeadersOptions): Buffer {
  const { endStream, maxFrameSize } = options;
  const count = Math.max(1, Math.ceil(block.length / maxFrameSize));
  const frames = Buffer.allocUnsafe(count * FRAME_HEADER_BYTES + block.length);
  for (let n = 0, at = 0; n < count; n++) {
    const start = n * maxFrameSize;
    const length = Math.min(maxFrameSize, block.length - start);
    const type = n === 0 ? FRAME.HEADERS : FRAME.CONTINUATION;
    const endsHeaders = n === count - 1 ? FLAG.END_HEADERS : 0;
    const endsStream = n === 0 && endStream ? FLAG.END_STREAM : 0;
    writeFrameHeader(frames, at, { type, flags: endsHeaders | endsStream, streamId, length });
    block.copy(frames, at + FRAME_HEADER_BYTES, start, start + length);
    at += FRAME_HEADER_BYTES + length;
  }
  return frames;
}

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
      this.handler.frame(this.#frameIn(chunk, at, end));
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
    this.handler.frame(this.#frameIn(whole, 0, whole.length));
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

  #frameIn(bytes: Buffer, start: number, end: number): Frame {
    const frame = this.#frame;
    frame.type = bytes[start + 3]!;
    frame.flags = bytes[start + 4]!;
    // The first bit is reserved and ignored.
    frame.streamId = bytes.readUInt32BE(start + 5) & 0x7fffffff;
    frame.payload = bytes.subarray(start + FRAME_HEADER_BYTES, end);
    return frame;
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

export const MAX_WINDOW = 0x7fff_ffff;

/**
 * What the peer asks of what is sent to it: RFC 9113, section 6.5.2, with the values that hold before its first SETTINGS. Its
 * HEADER_TABLE_SIZE limits nothing: see `NO_TABLE`.
 */
export class PeerSettings {
  maxConcurrentStreams = Infinity;
  initialWindow = 65_535;
  maxFrameSize = 16_384;
  maxHeaderListSize = Infinity;

  /** @throws {Http2Error} on values that the RFC forbids. */
  apply(payload: Buffer): void {
    if (payload.length % SETTING_BYTES !== 0)
      throw new Http2Error("FRAME_SIZE_ERROR", "the peer sends SETTINGS that are cut off");
    for (let at = 0; at < payload.length; at += SETTING_BYTES)
      this.#set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
  }

  #set(id: number, value: number): void {
    switch (id) {
      case SETTING.MAX_CONCURRENT_STREAMS:
        this.maxConcurrentStreams = value;
        break;
      case SETTING.INITIAL_WINDOW_SIZE:
        if (value > MAX_WINDOW)
          throw new Http2Error("FLOW_CONTROL_ERROR", `the peer sets an initial window of ${value} bytes`);
        this.initialWindow = value;
        break;
      case SETTING.MAX_FRAME_SIZE:
        if (value < 16_384 || value > 0xff_ffff)
          throw new Http2Error("PROTOCOL_ERROR", `the peer sets a frame size of ${value} bytes`);
        this.maxFrameSize = value;
        break;
      case SETTING.MAX_HEADER_LIST_SIZE:
        this.maxHeaderListSize = value;
        break;
      case SETTING.ENABLE_PUSH:
        if (value !== 0) throw new Http2Error("PROTOCOL_ERROR", "the peer enables push for a client");
    }
  }
}
