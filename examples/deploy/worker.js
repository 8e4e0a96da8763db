// @ts-check
// A worker for an orchestrator, as compose.yaml and kubernetes/worker.yaml start it: one replica works, the others stand by.
// GET /readyz answers 200 while this process can rely on etcd; on SIGTERM the work may end before the next replica goes on.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { connect, fromEnv, lead } from "leasehold";

// Less than the time until SIGKILL, by a second for etcd.
const { DRAIN_MS = "5000", PORT = "8080" } = process.env;

// ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY.
const cluster = connect({ ...fromEnv(), log: console });
const stop = new AbortController();
process.once("SIGTERM", () => {
  stop.abort();
  void cluster.close({ drainMs: Number(DRAIN_MS) });
});

const server = createServer(({ url }, response) => {
  const health = cluster.health();
  // A session that was lost is replaced by the next call.
  if (health.state !== "live" && !stop.signal.aborted) cluster.session().catch(() => undefined);
  response.writeHead(url === "/livez" || health.ok ? 200 : 503).end(JSON.stringify(health));
});
await once(server.listen(Number(PORT)), "listening");
console.log(`listening on ${PORT}`);

await lead(cluster, "reports", work, { signal: stop.signal });
await cluster.close();
server.close();
console.log("stopped");

/** @param {import("leasehold").Leadership} leadership */
async function work(leadership) {
  console.log(`working under fence ${leadership.fence}`);
  while (!leadership.signal.aborted && !stop.signal.aborted)
    await delay(1_000, undefined, { signal: leadership.signalWith(stop.signal) }).catch(() => undefined);
}
