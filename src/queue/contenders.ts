import { type Contender, contenderOf } from "../contender.js";
import type { KeyValue } from "../etcd/port.js";
import type { CallPolicy } from "../etcd/retry.js";
import { parseEntryValue, prefixEnd, prefixOf } from "../keys.js";
import type { EtcdServices } from "../session/connection.js";

interface Reading {
  readonly kvs: readonly KeyValue[];
  readonly holder: Contender | undefined;
}

/** The holder and the number of contenders before a place in the queue. */
export interface Ahead {
  readonly holder: Contender | undefined;
  readonly ahead: number;
}

/** The place in a queue: `revision` is that of its entry. */
interface Waited {
  readonly name: string;
  readonly revision: bigint | undefined;
}

/** Reads under way, by name: hundreds of calls that time out together share one read. */
const readings = new WeakMap<EtcdServices, Map<string, Promise<Reading>>>();

/** Holder and number of contenders before `revision`; before the end of the queue if the revision is not known. */
export async function readContendersAhead(
  services: EtcdServices,
  { name, revision }: Waited,
  policy: CallPolicy,
): Promise<Ahead> {
  const byName = readings.get(services) ?? new Map<string, Promise<Reading>>();
  readings.set(services, byName);
  const reading = byName.get(name) ?? readQueue(services, name, policy).finally(() => byName.delete(name));
  byName.set(name, reading);
  const { kvs, holder } = await reading;
  const before = revision === undefined ? kvs : kvs.filter((kv) => kv.createRevision < revision);
  const ahead = before.length;
  return { holder: ahead > 0 ? holder : undefined, ahead };
}

async function readQueue(services: EtcdServices, name: string, policy: CallPolicy): Promise<Reading> {
  const prefix = prefixOf(name);
  const range = { key: prefix, end: prefixEnd(prefix), order: "oldest first" } as const;
  const { kvs } = await services.client.range(range, policy);
  const [first] = kvs;
  if (!first) return { kvs, holder: undefined };
  const ttls = await remainingTtls(services, [first.leaseId], policy);
  const key = `${services.options.prefix}${first.key.toString()}`;
  return { kvs, holder: holderOf(name, { ...first, key }, ttls.get(first.leaseId)) };
}

/** Milliseconds that each lease has left by etcd's word; a lease that has ended has none. */
export async function remainingTtls(
  { client }: EtcdServices,
  leaseIds: Iterable<bigint>,
  policy: CallPolicy,
): Promise<ReadonlyMap<bigint, number>> {
  const ttls = new Map<bigint, number>();
  const distinct = new Set(leaseIds);
  distinct.delete(0n);
  await Promise.all(
    [...distinct].map(async (leaseId) => {
      // Without the keys: this user may not be permitted to read all of them.
      const { ttlSeconds } = await client.call(
        (member, options) => member.timeToLive(leaseId, { ...options, withoutKeys: true }),
        policy,
      );
      if (ttlSeconds >= 0) ttls.set(leaseId, ttlSeconds * 1000);
    }),
  );
  return ttls;
}

/** `kv` has the complete key. */
function holderOf(
  name: string,
  kv: Omit<KeyValue, "key"> & { readonly key: string },
  ttlRemainingMs: number | undefined,
): Contender {
  const { key, createRevision: revision, leaseId, value } = kv;
  const place = { name, key, state: "holding", revision, leaseId } as const;
  return contenderOf({ ...place, ...parseEntryValue(value), ttlRemainingMs });
}
