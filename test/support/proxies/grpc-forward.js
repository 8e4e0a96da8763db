// Forwards one gRPC call to a backend, and its answer back.
import http2 from "node:http2";

/**
 * @typedef {{
 *   path: string,
 *   headers: import("node:http2").IncomingHttpHeaders,
 *   client: import("node:http2").ServerHttp2Stream,
 *   backend: import("node:http2").ClientHttp2Session,
 *   chunks: Buffer[],
 *   message: () => Buffer,
 *   streaming: boolean,
 * }} Call `chunks`: the whole request of a unary call
 */

const { HTTP2_HEADER_STATUS, NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM } = http2.constants;

/** @param {import("node:http2").IncomingHttpHeaders} headers @param {boolean} late */
function requestHeaders(headers, late) {
  const copy = { ...headers };
  delete copy[":authority"];
  // When a request is late, the client's time limit has expired; etcd would refuse it instead of applying it.
  if (late) delete copy["grpc-timeout"];
  return copy;
}

/**
 * Resolves when the call is over on the backend's side.
 * @param {Call} call
 * @param {{ keepOnCancel: boolean, silent: boolean }} options
 *   keepOnCancel: the client's cancellation is not forwarded; silent: neither is the answer
 */
export async function forward(call, { keepOnCancel, silent }) {
  const { client, backend, streaming } = call;
  if (backend.destroyed) return;
  const request = backend.request(requestHeaders(call.headers, keepOnCancel), { endStream: false });
  request.on("error", () => {});
  if (streaming) client.pipe(request);
  else request.end(Buffer.concat(call.chunks));
  if (!keepOnCancel)
    client.once("close", () => request.destroyed || request.close(client.rstCode || NGHTTP2_CANCEL));
  if (!silent) answer(request, client);
  else request.resume();
  await new Promise((resolve) => request.once("close", resolve));
}

/**
 * Answers a call with only a status, as etcd does when it refuses one.
 * @param {Call} call @param {{ code: number, details: string }} [status] default: UNAVAILABLE
 */
export function refuse({ client }, { code, details } = { code: 14, details: "refused" }) {
  if (gone(client)) return;
  const status = { "grpc-status": String(code), "grpc-message": encodeURI(details) };
  client.respond({ ":status": 200, "content-type": "application/grpc", ...status }, { endStream: true });
}

/** @param {import("node:http2").ClientHttp2Stream} request @param {import("node:http2").ServerHttp2Stream} client */
function answer(request, client) {
  /** @type {import("node:http2").IncomingHttpHeaders} */
  let trailers = {};
  request.on("response", (headers, flags) => {
    const endStream = (flags & NGHTTP2_FLAG_END_STREAM) !== 0;
    if (gone(client)) return;
    client.respond(
      { ...plain(headers), [HTTP2_HEADER_STATUS]: headers[HTTP2_HEADER_STATUS] },
      { endStream, waitForTrailers: !endStream },
    );
  });
  client.once("wantTrailers", () => client.sendTrailers(plain(trailers)));
  request.on("trailers", (headers) => (trailers = headers));
  request.on("data", (chunk) => gone(client) || client.write(chunk));
  request.once("end", () => gone(client) || !client.headersSent || client.end());
  request.once("close", () => {
    if (request.rstCode !== 0 && !gone(client)) client.close(request.rstCode);
  });
}

/** @param {import("node:http2").ServerHttp2Stream} client */
const gone = (client) => client.destroyed || client.closed;

// Pseudo headers are not copied: node:http2 refuses them in trailers.
/** @param {import("node:http2").IncomingHttpHeaders} headers */
const plain = (headers) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith(":")));
