// Who led when, by etcd's own history of a queue: read without the library.
import { decode, encode, endOf } from "./gateway-text.js";
/** @import { EtcdMember } from "../etcd/etcd.js" */

/** @param {EtcdMember} member @returns {Promise<bigint>} */
export async function revisionOf(member) {
  const { header } = await member.gateway("/v3/kv/range", { key: encode("none") });
  return BigInt(header.revision);
}

/**
 * The create revision of the oldest key of the queue after each revision from `from` to now, without repetitions; undefined: the queue
 * was empty.
 * @param {EtcdMember} member @param {string} name @param {bigint} from
 * @returns {Promise<(bigint | undefined)[]>}
 */
export async function oldestSince(member, name, from) {
  const to = await revisionOf(member);
  const found = /** @type {(bigint | undefined)[]} */ ([]);
  for (let revision = from; revision <= to; revision++) {
    const { kvs = [] } = await member.gateway("/v3/kv/range", {
      key: encode(`${name}/`),
      range_end: encode(endOf(`${name}/`)),
      sort_target: "CREATE",
      sort_order: "ASCEND",
      limit: 1,
      revision: String(revision),
    });
    const oldest = kvs[0] && BigInt(kvs[0].create_revision);
    if (found.length === 0 || found.at(-1) !== oldest) found.push(oldest);
  }
  return found;
}

/** The value of a key. @param {EtcdMember} member @param {string} key @returns {Promise<string | undefined>} */
export async function valueAt(member, key) {
  const { kvs = [] } = await member.gateway("/v3/kv/range", { key: encode(key) });
  return kvs[0] && decode(kvs[0].value ?? "");
}
