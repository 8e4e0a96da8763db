// @ts-check
// A leader among replicas: one works, the others stand by and take over. GET /readyz answers 200 on the leader only, so
// that requests find it; GET /healthz answers 200 on every replica and names the leader.
import { once } from "node:events";
import { createServer } from "node:http";
import { setInterval } from "node:timers/promises";
import { connect, lead } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", PORT = "8080" } = process.env;
const WORK_EVERY_MS = 1000;

const cluster = connect({ hosts: ETCD_HOSTS.split(",") });
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());

/** @type {import("leasehold").Leadership | undefined} */
let term;
/** @type {string | undefined} */
let leader;

const server = createServer(({ url }, response) => {
  // Reads the clocks, so that even the first answer after a pause of this process is correct.
  const remainingMs = term?.remainingMs() ?? 0;
  const ready = url === "/healthz" || (url === "/readyz" && remainingMs > 0);
  response.writeHead(ready ? 200 : 503).end(JSON.stringify({ leader, remainingMs }));
});
server.listen(Number(PORT));
await once(server, "listening");
console.log("listening");

await lead(cluster, "jobs/reports", work, {
  ttlSeconds: Number(TTL_SECONDS),
  value: `port ${PORT}`,
  signal: stop.signal,
  onLeader: (now) => (leader = now?.value),
});
server.close();
await cluster.close();

/** Runs until it is to stop, or no longer leads. @param {import("leasehold").Leadership} leadership */
async function work(leadership) {
  term = leadership;
  const signal = leadership.signalWith(stop.signal);
  for await (const _ of setInterval(WORK_EVERY_MS, undefined, { signal })) {
    console.log(`worked under fence ${leadership.fence}`);
  }
}
