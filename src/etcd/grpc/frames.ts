import { ERROR_CODES, type ErrorName } from "./http2-error.js";

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
export const PING_BYTES = 8;

export interface FrameHeader {
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

export interface HeadersOptions {
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
