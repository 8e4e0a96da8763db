// @ts-check
// A worker for an orchestrator, as kubernetes/shards.yaml starts it: the replicas share out 64 shards.
// GET /readyz answers 200 while this process can rely on etcd; on SIGTERM each shard moves as soon as its work has stopped.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { connect, fromEnv, shards, untilShutdown } from "leasehold";

// DRAIN_MS is less than the time until SIGKILL, by a second for etcd. POD_NAME stays the same after a restart.
const { DRAIN_MS = "5000", PORT = "8080", POD_NAME, POD_IP = "127.0.0.1" } = process.env;
const drainMs = Number(DRAIN_MS);

// ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY.
const cluster = connect({ ...fromEnv(), log: console });

const server = createServer(({ url }, response) => {
  const health = cluster.health();
  response.writeHead(url === "/livez" || health.ok ? 200 : 503).end(JSON.stringify(health));
});
await once(server.listen(Number(PORT)), "listening");
console.log(`listening on ${PORT}`);

await untilShutdown(
  cluster,
  async (signal) => {
    const own = { id: POD_NAME, value: `http://${POD_IP}:${PORT}`, drainMs: drainMs / 2 };
    const feeds = await shards(cluster, "feeds", { count: 64, ...own, signal }, work);
    await once(signal, "abort");
    await feeds.close();
  },
  { drainMs },
);
server.close();
console.log("stopped");

/** @param {import("leasehold").Shard} shard */
async function work({ id, fence, signal }) {
  console.log(`shard ${id} under fence ${fence}`);
  while (!signal.aborted) await delay(1_000, undefined, { signal }).catch(() => undefined);
}
