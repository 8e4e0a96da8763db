// @ts-check
// Exclusive migration at start-up: every replica waits here until the data is what its code expects. One migrates, and
// the others find it done. Each step is one transaction with its number, which etcd accepts only from the holder.
import { Etcd3 } from "etcd3";
import { connect, Mutex, whileHeld } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15" } = process.env;
const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const etcd = new Etcd3({ hosts: [...cluster.hosts] });

/** Applied in this order, once each. Never change a released step: append new ones. */
const STEPS = [
  [etcd.put("shop/currency").value("EUR")],
  [etcd.put("shop/limit").value("100"), etcd.put("shop/region").value("eu")],
  [etcd.delete().key("shop/currency"), etcd.put("shop/currencies").value("EUR,CHF")],
];

await new Mutex(cluster, "migrations/shop").withLock(async (lock) => {
  const version = Number((await etcd.get("shop/version").string()) ?? 0);
  for (const [index, step] of STEPS.entries()) {
    if (index < version) continue;
    const { succeeded } = await etcd
      .if(...whileHeld(lock))
      .then(...step, etcd.put("shop/version").value(index + 1))
      .commit();
    if (!succeeded) throw new Error(`Lost the lock before step ${index + 1}: another replica goes on`);
    console.log(`step ${index + 1} done`);
  }
});
console.log(`version ${STEPS.length}: serving`);

etcd.close();
await cluster.close();
