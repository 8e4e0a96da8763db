// @ts-check
// Fenced writes to an HTTP resource: every write carries the fencing token in a header, and the resource
// (fenced-http-server.js) refuses a token that is older than one it has seen.
import { connect, Mutex } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", SOURCE_URL = "" } = process.env;
const { RESOURCE_URL = "http://127.0.0.1:8080/rates/EUR" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
try {
  await new Mutex(cluster, "rates/EUR").withLock(async (lock) => {
    const source = await fetch(SOURCE_URL);
    const value = await source.text();
    // Only a sticky lock has several turns of one fence.
    const headers = { "Fencing-Token": `${lock.fence}.${lock.turn}` };
    const { ok, status } = await fetch(RESOURCE_URL, { method: "PUT", headers, body: value });
    if (status === 412) throw new Error(`EUR not written: fence ${lock.fence}, turn ${lock.turn} is stale`);
    if (!ok) throw new Error(`EUR not written: ${RESOURCE_URL} answered ${status}`);
    console.log(`EUR is ${value}, written under fence ${lock.fence}, turn ${lock.turn}`);
  });
} finally {
  await cluster.close();
}
