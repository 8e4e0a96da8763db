// Uses etcd's own clock to measure "longer than a TTL": a lease that is never renewed, until etcd drops it.
import { setTimeout as delay } from "node:timers/promises";

/**
 * Resolves when etcd has dropped a lease of `ttlSeconds` that was granted after the call and never renewed.
 * @param {import("../etcd/etcd.js").EtcdCluster} etcd @param {number} ttlSeconds
 * @param {readonly string[]} [flags] of etcdctl, such as `--user=name:password`
 */
export async function untilLeaseExpires(etcd, ttlSeconds, flags = []) {
  const granted = await etcd.etcdctl([...flags, "lease", "grant", String(ttlSeconds)]);
  const id = /lease (\w+) granted/.exec(granted.stdout)?.[1];
  if (id === undefined) throw new Error(`no lease was granted: ${granted.stderr}`);
  for (;;) {
    const { stdout, stderr } = await etcd.etcdctl([...flags, "lease", "timetolive", id]);
    if (/already expired/.test(stdout)) return;
    if (!stdout.includes(id)) throw new Error(`nothing was told of lease ${id}: ${stderr}`);
    await delay(100);
  }
}
