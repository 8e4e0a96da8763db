import type { Headers } from "../http2/stream.js";

/** A gRPC status. https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
export interface Status {
  readonly code: number;
  readonly details: string;
}

const UNKNOWN = 2;
const INTERNAL = 13;
const UNAVAILABLE = 14;

/** https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md */
const BY_HTTP_STATUS: ReadonlyMap<string, number> = new Map([
  ["400", INTERNAL],
  ["401", 16],
  ["403", 7],
  ["404", 12],
  ["429", UNAVAILABLE],
  ["502", UNAVAILABLE],
  ["503", UNAVAILABLE],
  ["504", UNAVAILABLE],
]);

/** `undefined`: the response comes from a gRPC server. Otherwise the status that gRPC derives from HTTP's. */
export function foreignStatus(headers: Headers): Status | undefined {
  const status = headers.get(":status") ?? "none";
  const contentType = headers.get("content-type") ?? "none";
  const isGrpc = /^application\/grpc(?:$|[+;])/.test(contentType);
  if (status === "200" && isGrpc) return undefined;
  // A gRPC server may explain an HTTP error by a status of its own.
  if (isGrpc && headers.has("grpc-status")) return undefined;
  const code = BY_HTTP_STATUS.get(status) ?? UNKNOWN;
  return { code, details: `HTTP status ${status}, content type ${contentType}: is this etcd?` };
}

/** The status in trailers, or in headers that end the stream. `undefined` if they contain no status. */
export function statusOf(headers: Headers): Status | undefined {
  const code = headers.get("grpc-status");
  if (code === undefined || !/^\d{1,9}$/.test(code)) return undefined;
  if (code === "0") return OK;
  return { code: Number(code), details: decodePercent(headers.get("grpc-message") ?? "") };
}

const OK: Status = { code: 0, details: "" };

/** `grpc-message` is percent-encoded UTF-8. What is encoded wrongly stays as it is, as PROTOCOL-HTTP2 requires. */
function decodePercent(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
