// @ts-check
// Idempotency keys for Express 5, as idempotency.js describes them. The key counts together with the user:
//   app.post("/payments", express.json(), idempotent(cluster, { userOf: ({ auth }) => auth.id }), pay);
// The response is sent when it has been kept. A handler must end it even if the client has gone, or the key stays in use.
import { answerOnce } from "./idempotency.js";

/**
 * @typedef {object} Options
 * @property {(request: any) => string} userOf
 * @property {boolean} [required] Requests without a key get 400. Default: true
 * @property {boolean} [keepErrors]
 */

/** @param {import("leasehold").Cluster} cluster @param {Options} options @returns {import("express").RequestHandler} */
export const idempotent = (cluster, { userOf, required = true, keepErrors }) =>
  async function (request, response, next) {
    const key = request.get("Idempotency-Key");
    if (key === undefined && !required) return next();
    const content = [request.method, request.originalUrl, request.body];
    const { write, end } = response;
    const handle = () => {
      const answered = heldBack(response);
      next();
      return answered;
    };
    const answer = await answerOnce(cluster, { user: userOf(request), key, content }, handle, keepErrors);
    Object.assign(response, { write, end });
    if (!response.headersSent)
      response.status(answer.status).setHeaders(new Map(Object.entries(answer.headers)));
    response.end(answer.body);
  };

/** Resolves with what the handlers have ended the response with. @param {import("express").Response} response */
function heldBack(response) {
  /** @type {Buffer[]} */
  const chunks = [];
  const take = (/** @type {any} */ chunk, /** @type {any} */ encoding) => {
    if (typeof chunk === "string") chunks.push(Buffer.from(chunk, encoding));
    else if (chunk instanceof Uint8Array) chunks.push(Buffer.from(chunk));
    return true;
  };
  return new Promise((/** @type {(answer: import("./idempotency.js").Answer) => void} */ resolve) => {
    response.write = take;
    response.end = (/** @type {any[]} */ ...[chunk, encoding]) => {
      take(chunk, encoding);
      const { statusCode: status } = response;
      resolve({ status, headers: response.getHeaders(), body: Buffer.concat(chunks) });
      return response;
    };
  });
}
