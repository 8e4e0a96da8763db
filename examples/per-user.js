// @ts-check
// One request at a time for each user, across all replicas: POST /orders/<user>. A client that would wait for too long
// is asked to retry later, and the wait of a client that disconnects ends with its connection.
import { once } from "node:events";
import { createServer } from "node:http";
import { connect, httpStatusOf, Mutex } from "leasehold";

const {
  ETCD_HOSTS = "http://127.0.0.1:2379",
  TTL_SECONDS = "15",
  BACKEND_URL = "",
  PORT = "8080",
} = process.env;
const WAIT_MS = 2000;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const server = createServer((request, response) => {
  answer(request, response).catch((error) => refuse(response, error));
});
server.listen(Number(PORT));
await once(server, "listening");
console.log("listening");

/** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
async function answer({ url = "" }, response) {
  const user = /^\/orders\/([\w.-]+)$/.exec(url)?.[1];
  if (user === undefined) return response.writeHead(404).end();
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const wait = { signal: gone.signal, timeoutMs: WAIT_MS };
  const order = await new Mutex(cluster, `orders/${user}`).withLock((lock) => place(user, lock), wait);
  return response.end(order);
}

/** @param {string} user @param {import("leasehold").Lock} lock */
async function place(user, { fence, signal }) {
  const headers = { "Fencing-Token": fence.toString() };
  const response = await fetch(`${BACKEND_URL}/${user}`, { method: "POST", headers, signal });
  return response.text();
}

/** @param {import("node:http").ServerResponse} response @param {unknown} error */
function refuse(response, error) {
  if (response.destroyed) return;
  const status = httpStatusOf(error) ?? 500;
  response.writeHead(status, status === 500 ? {} : { "Retry-After": "1" }).end();
}
