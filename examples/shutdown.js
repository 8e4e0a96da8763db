// @ts-check
// Graceful shutdown: on SIGTERM a worker starts nothing new, finishes its work under the lock while the lease is still
// renewed, and exits. The next one continues at once, not after the TTL.
import { connect, Mutex, untilShutdown } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", JOBS_URL = "" } = process.env;
// Less than the time until SIGKILL: 30 s in Kubernetes, 90 s in systemd.
const { DRAIN_MS = "20000" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const jobs = new Mutex(cluster, "jobs/import");

await untilShutdown(
  cluster,
  async (signal) => {
    signal.addEventListener("abort", () => console.log("stopping"));
    while (!signal.aborted) await jobs.withLock(work, { signal });
  },
  { drainMs: Number(DRAIN_MS) },
);
console.log("stopped");

/**
 * The signal of the lock, not the stop signal: work that has started is finished.
 * @param {import("leasehold").Lock} lock
 */
async function work({ signal }) {
  const response = await fetch(JOBS_URL, { method: "POST", signal });
  console.log(`did ${await response.text()}`);
}
