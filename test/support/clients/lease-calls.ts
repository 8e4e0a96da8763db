// Calls about leases that another client, or an operator, makes.
import type { EtcdMember } from "../etcd/etcd.js";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

export const grant = (member: EtcdMember, leaseId: bigint, ttlSeconds: number): Promise<unknown> =>
  member.gateway("/v3/lease/grant", { ID: leaseId.toString(), TTL: ttlSeconds });

export const revoke = (member: EtcdMember, leaseId: bigint): Promise<unknown> =>
  member.gateway("/v3/lease/revoke", { ID: leaseId.toString() });

/** Puts the key again, on this lease; 0n is none. */
export const putOn = (member: EtcdMember, leaseId: bigint, key: string): Promise<unknown> =>
  member.gateway("/v3/kv/put", { key: base64(key), value: base64("another"), lease: leaseId.toString() });

/** What etcd reports about a lease: seconds left and granted, and its keys. */
export async function timeToLive(member: EtcdMember, leaseId: bigint) {
  const body = { ID: leaseId.toString(), keys: true };
  const answer = (await member.gateway("/v3/lease/timetolive", body)) as {
    TTL: string;
    grantedTTL: string;
    keys?: string[];
  };
  const keys = (answer.keys ?? []).map((key) => Buffer.from(key, "base64").toString());
  return { left: Number(answer.TTL), granted: Number(answer.grantedTTL), keys };
}
