import { decode, encode, endOf } from "./gateway-text.js";

/** @typedef {import("../etcd/etcd.js").EtcdMember} EtcdMember */
/** @typedef {(prefix: string) => Promise<string[]>} KeysAt the complete keys under a prefix, sorted */

/** The keys that a member has, read by its gateway. @param {EtcdMember} member @returns {KeysAt} */
export function keysAt(member) {
  return async (prefix) => {
    const range =
      prefix === ""
        ? { key: "AA==", range_end: "AA==" }
        : { key: encode(prefix), range_end: encode(endOf(prefix)) };
    const { kvs = [] } = await member.gateway("/v3/kv/range", { ...range, keys_only: true });
    return kvs.map((/** @type {{ key: string }} */ { key }) => decode(key));
  };
}
