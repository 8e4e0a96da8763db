// Many keys at once, by etcd's JSON gateway: crowds without a client for each contender.
/** @import { EtcdMember } from "../etcd/etcd.js" */

const base64 = (/** @type {string} */ text) => Buffer.from(text).toString("base64");
/** etcd takes 128 operations in a transaction. */
const MAX_OPERATIONS = 128;

/**
 * @param {EtcdMember} member @param {number} ttlSeconds
 * @returns {Promise<bigint>} the ID of a lease that nobody renews
 */
export async function grantLease(member, ttlSeconds) {
  const { ID } = await member.gateway("/v3/lease/grant", { TTL: ttlSeconds });
  return BigInt(ID);
}

/**
 * The keys of one transaction have one create revision.
 * @param {EtcdMember} member @param {readonly string[]} keys
 * @param {{ leaseId?: bigint, value?: string, atOnce?: number }} [options]
 */
export async function putKeys(member, keys, { leaseId = 0n, value = "", atOnce = MAX_OPERATIONS } = {}) {
  for (let n = 0; n < keys.length; n += atOnce) {
    const success = keys.slice(n, n + atOnce).map((key) => ({
      request_put: { key: base64(key), value: base64(value), lease: leaseId.toString() },
    }));
    await member.gateway("/v3/kv/txn", { success });
  }
}
