// @ts-check
// Graceful shutdown: on SIGTERM a worker starts nothing new, finishes its work under the lock while the lease is still
// renewed, and exits. The next one continues at once, not after the TTL.
import { connect, Mutex } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", JOBS_URL = "" } = process.env;
// Less than the time until SIGKILL: 30 s in Kubernetes, 90 s in systemd.
const { DRAIN_MS = "20000" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const jobs = new Mutex(cluster, "jobs");
const stop = new AbortController();
process.once("SIGTERM", () => {
  console.log("stopping");
  stop.abort();
  void cluster.close({ drainMs: Number(DRAIN_MS) });
});

try {
  while (!stop.signal.aborted) await jobs.withLock(work, { signal: stop.signal });
} catch (error) {
  // The wait for the lock ended with this program's own reason, which is not a failure.
  if (error !== stop.signal.reason) throw error;
} finally {
  // Resolves when etcd has confirmed it: a process that exits before that leaves its place in the queue for a TTL.
  await cluster.close();
}
console.log("stopped");

/**
 * The signal of the lock, not the stop signal: work that has started is finished.
 * @param {import("leasehold").Lock} lock
 */
async function work({ signal }) {
  const response = await fetch(JOBS_URL, { method: "POST", signal });
  console.log(`did ${await response.text()}`);
}
