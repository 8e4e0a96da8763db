// @ts-check
// Idempotency keys for Fastify 5, as idempotency.js describes them. The key counts together with the user:
//   app.post("/payments", idempotent(app.cluster, { userOf: (request) => request.user.id }), pay);
// The response is sent when it has been kept. A handler must send it by `reply`, even if the client has gone, or the key stays in use.
import { buffer } from "node:stream/consumers";
import { answerOnce } from "./idempotency.js";

/**
 * @typedef {object} Options
 * @property {(request: any) => string} userOf
 * @property {boolean} [required] Requests without a key get 400. Default: true
 * @property {boolean} [keepErrors]
 */

/** Hooks of a route. @param {import("leasehold").Cluster} cluster @param {Options} options */
export function idempotent(cluster, { userOf, required = true, keepErrors }) {
  /** For each request whose handler runs: takes what that answers. @type {WeakMap<object, (answer: import("./idempotency.js").Answer) => Promise<void>>} */
  const running = new WeakMap();
  return {
    /** @param {import("fastify").FastifyRequest} request @param {import("fastify").FastifyReply} reply */
    async preHandler(request, reply) {
      const key = request.headers["idempotency-key"]?.toString();
      if (key === undefined && !required) return;
      const content = [request.method, request.url, request.body];
      const [begun, answered] = [deferred(), deferred()];
      const handle = () => (begun.resolve(undefined), answered.promise);
      const sent = answerOnce(cluster, { user: userOf(request), key, content }, handle, keepErrors);
      const answer = await Promise.race([begun.promise, sent]);
      if (answer) return reply.code(answer.status).headers(answer.headers).send(answer.body);
      running.set(request, async (own) => {
        answered.resolve(own);
        await sent.catch(() => undefined);
      });
    },
    /** @param {import("fastify").FastifyRequest} request @param {import("fastify").FastifyReply} reply @param {any} payload */
    async onSend(request, reply, payload) {
      const take = running.get(request);
      if (!take) return payload;
      running.delete(request);
      const sent = typeof payload?.pipe === "function" ? await buffer(payload) : payload;
      await take({ status: reply.statusCode, headers: reply.getHeaders(), body: Buffer.from(sent ?? "") });
      return sent;
    },
  };
}

function deferred() {
  /** @type {(value: any) => void} */
  let resolve = () => undefined;
  const promise = new Promise((given) => (resolve = given));
  return { promise, resolve };
}
