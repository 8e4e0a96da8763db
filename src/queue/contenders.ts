import type { EtcdServices } from "../session/connection.js";
import type { Contender } from "../contender.js";
import type { CallPolicy } from "../etcd/retry.js";
import type { KeyValue } from "../etcd/port.js";
import { parseEntryValue, prefixEnd, prefixOf } from "../keys.js";

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
  const ttls = await remainingTtls(services, [first], policy);
  return { kvs, holder: holderOf(name, first, ttls.get(first.leaseId)) };
}

async function remainingTtls(
  { client }: EtcdServices,
  kvs: readonly KeyValue[],
  policy: CallPolicy,
): Promise<ReadonlyMap<bigint, number>> {
  const ttls = new Map<bigint, number>();
  const leaseIds = new Set(kvs.map((kv) => kv.leaseId).filter((id) => id !== 0n));
  await Promise.all(
    [...leaseIds].map(async (leaseId) => {
      const { ttlSeconds } = await client.call(
        (member, options) => member.timeToLive(leaseId, options),
        policy,
      );
      if (ttlSeconds >= 0) ttls.set(leaseId, ttlSeconds * 1000);
    }),
  );
  return ttls;
}

function holderOf(name: string, kv: KeyValue, ttlRemainingMs: number | undefined): Contender {
  const { owner, since } = parseEntryValue(kv.value);
  const date = since === undefined ? undefined : new Date(since);
  const holder = {
    name,
    key: kv.key.toString(),
    state: "holding",
    revision: kv.createRevision,
    leaseId: kv.leaseId,
    owner,
    since: date && !Number.isNaN(date.getTime()) ? date : undefined,
    ttlRemainingMs,
  };
  const toJSON = (): Record<string, unknown> => ({
    ...holder,
    revision: holder.revision.toString(),
    leaseId: holder.leaseId.toString(),
  });
  // Not enumerable, so that logs and comparisons show only the data.
  return Object.defineProperty(holder, "toJSON", { value: toJSON }) as Contender;
}
