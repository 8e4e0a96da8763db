// @ts-check
// A worker for an orchestrator, as compose.yaml and kubernetes/worker.yaml start it: one replica works, the others stand by.
// GET /readyz answers 200 while this process can rely on etcd; on SIGTERM the work may end before the next replica goes on.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { connect, fromEnv, lead, untilShutdown } from "leasehold";

// Less than the time until SIGKILL, by a second for etcd.
const { DRAIN_MS = "5000", PORT = "8080" } = process.env;

// ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY.
const cluster = connect({ ...fromEnv(), log: console });

const server = createServer(({ url }, response) => {
  const health = cluster.health();
  // A session that was lost is replaced by the next call.
  if (health.state !== "live") cluster.session().catch(() => undefined);
  response.writeHead(url === "/livez" || health.ok ? 200 : 503).end(JSON.stringify(health));
});
await once(server.listen(Number(PORT)), "listening");
console.log(`listening on ${PORT}`);

await untilShutdown(
  cluster,
  (stop) => lead(cluster, "jobs/reports", (leadership) => work(leadership, stop), { signal: stop }),
  { drainMs: Number(DRAIN_MS) },
);
server.close();
console.log("stopped");

/**
 * @param {import("leasehold").Leadership} leadership
 * @param {AbortSignal} stop
 */
async function work(leadership, stop) {
  console.log(`working under fence ${leadership.fence}`);
  const signal = leadership.signalWith(stop);
  while (!signal.aborted) await delay(1_000, undefined, { signal }).catch(() => undefined);
}
