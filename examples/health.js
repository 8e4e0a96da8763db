// @ts-check
// Probes for an orchestrator. GET /readyz answers 200 while this process can rely on etcd. GET /livez does not depend on etcd,
// which a restart would not bring back: it answers 503 only if the work of a lost leadership has not stopped in time.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { connect, lead } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", PORT = "8080" } = process.env;
/** How long work may take to stop after its leadership was lost. */
const { GRACE_MS = "5000", STUBBORN = "" } = process.env;

const session = { ttlSeconds: Number(TTL_SECONDS) };
const cluster = connect({ hosts: ETCD_HOSTS.split(","), session, log: console });
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());

/** Time of the loss, while the work of the lost leadership still runs. @type {number | undefined} */
let lostAt;

/** @type {Record<string, () => { readonly ok: boolean }>} */
const probes = {
  "/readyz": () => {
    const health = cluster.health();
    // A lost session is replaced by the next call; while no traffic comes, there may be no other call.
    if (health.state !== "live") cluster.session().catch(() => undefined);
    return health;
  },
  "/livez": () => {
    const overdueMs = lostAt === undefined ? 0 : performance.now() - lostAt;
    return { ok: overdueMs <= Number(GRACE_MS), overdueMs };
  },
};

const server = createServer(({ url = "" }, response) => {
  const report = probes[url]?.() ?? { ok: false };
  response.writeHead(report.ok ? 200 : 503).end(JSON.stringify(report));
});
server.listen(Number(PORT));
await once(server, "listening");
await cluster.session();
console.log("listening");

await lead(cluster, "jobs/reports", work, { ...session, signal: stop.signal });
server.close();
await cluster.close();

/** @param {import("leasehold").Leadership} leadership */
async function work(leadership) {
  const onEnd = () => (lostAt = performance.now());
  leadership.signal.addEventListener("abort", onEnd, { once: true });
  if (leadership.signal.aborted) onEnd();
  console.log(`working under fence ${leadership.fence}`);
  try {
    const signal = leadership.signalWith(stop.signal);
    // With STUBBORN, it ignores its signal: that is what the liveness probe is for.
    await delay(2 ** 31 - 1, undefined, STUBBORN ? {} : { signal });
  } finally {
    leadership.signal.removeEventListener("abort", onEnd);
    lostAt = undefined;
  }
}
