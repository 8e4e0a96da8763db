// @ts-check
// Handlers of Express 5 under a lock, and the answer to what leasehold rejects with:
//   app.post("/orders/:user", locked(cluster, ({ params }) => `orders/${params.user}`, place));
//   app.use(refused);
// A wait ends with its connection. Others that wait too long get 429, and all get 503 while etcd does not answer.
import { httpStatusOf, Mutex } from "leasehold";

const WAIT_MS = 2000;

/**
 * @param {import("leasehold").Cluster} cluster
 * @param {(request: import("express").Request) => string} nameOf
 * @param {(request: import("express").Request, response: import("express").Response, lock: import("leasehold").Lock) => unknown} handler
 * @returns {import("express").RequestHandler}
 */
export const locked = (cluster, nameOf, handler) => async (request, response) => {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const wait = { signal: gone.signal, timeoutMs: WAIT_MS };
  await new Mutex(cluster, nameOf(request)).withLock((lock) => handler(request, response, lock), wait);
};

/** @type {import("express").ErrorRequestHandler} */
export const refused = (error, _request, response, next) => {
  if (response.destroyed) return;
  const status = httpStatusOf(error);
  if (status === undefined || response.headersSent) return next(error);
  response.status(status).set("Retry-After", "1").end();
};
