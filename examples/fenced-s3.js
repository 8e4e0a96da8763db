// @ts-check
// Fenced writes to an object of S3: the object contains the fencing token of its last writer, and each write names the version
// that its writer has read. S3 compares ETags for equality, not tokens, so the writer compares the token it has read with its own.
import { connect, Mutex } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", SOURCE_URL = "" } = process.env;
/** Requests to AWS must be signed: put a fetch that signs in place of this one, or the same calls of the AWS SDK. */
const { OBJECT_URL = "http://127.0.0.1:9000/bucket/rates/EUR.json" } = process.env;

/** @param {string} url @param {bigint} fence @param {string} value */
async function writeFenced(url, fence, value) {
  for (;;) {
    const read = await fetch(url);
    if (!read.ok && read.status !== 404) throw new Error(`GET ${url}: ${read.status}`);
    /** @type {any} */
    const found = read.ok ? await read.json() : { fence: "0" };
    if (BigInt(found.fence) > fence) throw new Error(`EUR not written: fence ${fence} is stale`);
    const version = read.headers.get("ETag") ?? "";
    /** @type {Record<string, string>} */
    const condition = read.ok ? { "If-Match": version } : { "If-None-Match": "*" };
    const body = JSON.stringify({ fence: fence.toString(), value });
    const { ok, status } = await fetch(url, { method: "PUT", headers: condition, body });
    if (ok) return;
    // 412: another writer came between. 409: at the same time. 404: the object was deleted.
    if (![404, 409, 412].includes(status)) throw new Error(`PUT ${url}: ${status}`);
  }
}

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
try {
  await new Mutex(cluster, "rates/EUR").withLock(async (lock) => {
    const source = await fetch(SOURCE_URL);
    const value = await source.text();
    await writeFenced(OBJECT_URL, lock.fence, value);
    console.log(`EUR is ${value}, written under fence ${lock.fence}`);
  });
} finally {
  await cluster.close();
}
