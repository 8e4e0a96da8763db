// @ts-check
// A plugin of Fastify 5. Its cluster ends with the app, and `app.locked` makes a handler that runs under a lock:
//   await app.register(leasehold, { hosts: "http://127.0.0.1:2379" });
//   app.post("/orders/:user", app.locked((request) => `orders/${request.params.user}`, place));
// A wait ends with its connection. Others that wait too long get 429, and all get 503 while etcd does not answer.
import { connect, httpStatusOf, Mutex } from "leasehold";

const WAIT_MS = 2000;

/** @param {import("fastify").FastifyInstance} app @param {import("leasehold").ConnectOptions} options */
export async function leasehold(app, options) {
  const cluster = connect(options);
  app.addHook("onClose", () => cluster.close());
  app.decorate("cluster", cluster);
  app.decorate(
    "locked",
    /** @param {(request: any) => string} nameOf @param {(request: any, lock: import("leasehold").Lock) => unknown} handler */
    (nameOf, handler) => {
      /** @param {import("fastify").FastifyRequest} request @param {import("fastify").FastifyReply} reply */
      return async (request, reply) => {
        const gone = new AbortController();
        reply.raw.once("close", () => gone.abort());
        const wait = { signal: gone.signal, timeoutMs: WAIT_MS };
        try {
          return await new Mutex(cluster, nameOf(request)).withLock((lock) => handler(request, lock), wait);
        } catch (error) {
          const status = httpStatusOf(error);
          if (status === undefined) throw error;
          return reply.code(status).header("Retry-After", "1").send();
        }
      };
    },
  );
}
// The decorations are those of the app that registers it, not of a part of it.
Object.assign(leasehold, { [Symbol.for("skip-override")]: true });
