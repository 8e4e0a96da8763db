// @ts-check
// A cache that cannot stampede: GET /rates/<currency>. However many requests of however many replicas ask for a rate at the same time, one of
// them asks the source. For a minute all others get its answer; for an hour more they get the old one at once, while one asks anew.
import { once } from "node:events";
import { createServer } from "node:http";
import { connect, httpStatusOf, isLeaseholdError, share } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15" } = process.env;
const { SOURCE_URL = "", PORT = "8080", FRESH_MS = "60000" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const server = createServer((request, response) => {
  answer(request, response).catch((error) => refuse(response, error));
});
server.listen(Number(PORT));
await once(server, "listening");
console.log("listening");

/** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
async function answer({ url = "" }, response) {
  const currency = /^\/rates\/([A-Z]{3})$/.exec(url)?.[1];
  if (currency === undefined) return response.writeHead(404).end();
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const rate = await share(cluster, `rates/${currency}`, (lock) => ask(currency, lock), {
    ttlMs: Number(FRESH_MS),
    staleMs: 3_600_000,
    onRefreshError: console.error,
    signal: gone.signal,
    timeoutMs: 10_000,
  });
  return response.end(rate);
}

/** @param {string} currency @param {import("leasehold").Lock} lock */
async function ask(currency, { signal }) {
  const response = await fetch(`${SOURCE_URL}/${currency}`, { signal });
  if (!response.ok) throw new Error(`The source answers ${response.status}`);
  return response.text();
}

/** 502 if the source has failed, whoever has asked it: no error is cached. @param {import("node:http").ServerResponse} response @param {unknown} error */
function refuse(response, error) {
  if (response.destroyed) return;
  const status = isLeaseholdError(error, "RUN_FAILED") ? 502 : (httpStatusOf(error) ?? 502);
  response.writeHead(status, { "Retry-After": "1" }).end();
}
