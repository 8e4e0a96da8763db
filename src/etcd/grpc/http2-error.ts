/** The error codes of RST_STREAM and GOAWAY (RFC 9113 section 7). */
export const ERROR_CODES = {
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
