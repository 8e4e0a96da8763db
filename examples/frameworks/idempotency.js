// @ts-check
// Idempotency keys, for the hooks in idempotency-express.js and idempotency-fastify.js. A request that is sent again with its `Idempotency-Key`
// gets the response of the first one, for a day, whatever replica it reaches:
//   400  it has no key where one is required
//   409  the first request is running
//   422  the user has used the key for another method, path or body
//   500  it is unknown what came of the first request, as its server has crashed. Nothing runs again
//   503  etcd does not answer. Nothing has run
// A response of 5xx is kept with `keepErrors` only. Without it, the handler runs again for a retry.
import { STATUS_CODES } from "node:http";
import { httpStatusOf, once } from "leasehold";

const KEY = /^[\x21-\x7e]{1,255}$/;
const KEPT_HEADERS = ["content-type", "location"];
/** `once` keeps 65,536 bytes, and base64 makes four of three. */
const MAX_BODY = 48_000;
/** @type {Record<number, string>} */
const TITLES = {
  400: "The request needs an Idempotency-Key of 1 to 255 visible characters",
  409: "The first request with this Idempotency-Key is running",
  422: "This Idempotency-Key belongs to another request",
};

/**
 * @typedef {{ status: number, headers: Record<string, any>, body: Buffer }} Answer
 * @typedef {{ user: string, key: string | undefined, content: unknown }} Asked `content`: what the request consists of
 */

/**
 * Runs `handle` for the first request with its key, and resolves with what to send.
 * @param {import("leasehold").Cluster} cluster @param {Asked} asked @param {() => Promise<Answer>} handle @param {boolean} [keepErrors]
 * @returns {Promise<Answer>}
 */
export async function answerOnce(cluster, { user, key, content }, handle, keepErrors = false) {
  if (key === undefined || !KEY.test(key)) return problem(400);
  const fingerprint = JSON.stringify(content);
  const options = /** @type {const} */ ({ result: "keep", fingerprint, ifRunning: "fail", ifHeld: "skip" });
  const slot = `${encodeURIComponent(user)}/${key}`;
  const own = /** @type {Answer[]} */ ([]);
  const work = async () => {
    const answer = await handle();
    own.push(answer);
    if (answer.status >= 500 && !keepErrors) throw new Error(`answered with ${answer.status}`);
    return keptOf(answer);
  };
  try {
    let reply = await once(cluster, "idempotency", slot, work, options);
    // A failed request runs again. A lost one does not: nobody knows how far it came.
    if (reply.status === "failed")
      reply = await once(cluster, "idempotency", slot, work, { ...options, rerun: "if_failed" });
    return own[0] ?? answerOf(reply);
  } catch (error) {
    // Kept or not: this is what has happened.
    if (own[0]) return own[0];
    const status = httpStatusOf(error);
    if (status === undefined) throw error;
    return problem(status);
  }
}

/** @param {Answer} answer */
function keptOf({ status, headers, body }) {
  const kept = Object.entries(headers).filter(([name]) => KEPT_HEADERS.includes(name));
  const isLarge = body.length > MAX_BODY;
  return { status, headers: Object.fromEntries(kept), body: isLarge ? undefined : body.toString("base64") };
}

/** @param {import("leasehold").OnceReply<ReturnType<typeof keptOf>>} reply @returns {Answer} */
function answerOf(reply) {
  if (reply.status === "held") return problem(409);
  if (reply.status !== "done") return problem(500, "It is unknown what came of the first request");
  const { status, headers, body } = reply.result;
  if (body === undefined) return problem(500, `The first response, a ${status}, was too large to be kept`);
  const replayed = { ...headers, "idempotent-replayed": "true" };
  return { status, headers: replayed, body: Buffer.from(body, "base64") };
}

/** As of RFC 9457. @param {number} status @returns {Answer} */
function problem(status, title = TITLES[status] ?? STATUS_CODES[status]) {
  const again = status === 409 || status === 503 ? { "retry-after": "1" } : {};
  const headers = { "content-type": "application/problem+json", ...again };
  return { status, headers, body: Buffer.from(JSON.stringify({ status, title })) };
}
