// The state of etcd itself, read directly without a proxy.

/** @typedef {import("../etcd/etcd.js").EtcdMember} EtcdMember */

const base64 = (/** @type {string} */ text) => Buffer.from(text).toString("base64");

/**
 * The places of a queue, holder first.
 * @param {EtcdMember} member @param {string} name
 * @returns {Promise<{ key: string, revision: bigint, leaseId: bigint }[]>}
 */
export async function placesOf(member, name) {
  const body = {
    key: base64(`${name}/`),
    range_end: base64(`${name}0`),
    sort_target: "CREATE",
    sort_order: "ASCEND",
  };
  const { kvs = [] } = await member.gateway("/v3/kv/range", body);
  return kvs.map((/** @type {{ key: string, create_revision: string, lease?: string }} */ kv) => ({
    key: Buffer.from(kv.key, "base64").toString(),
    revision: BigInt(kv.create_revision),
    leaseId: BigInt(kv.lease ?? 0),
  }));
}

/** @param {EtcdMember} member @returns {Promise<Set<bigint>>} all leases of the cluster */
export async function leasesOf(member) {
  const { leases = [] } = await member.gateway("/v3/lease/leases", {});
  return new Set(leases.map((/** @type {{ ID: string }} */ lease) => BigInt(lease.ID)));
}
