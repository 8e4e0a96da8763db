import type { EtcdServices } from "./connection.js";
import type { CallPolicy } from "../etcd/retry.js";
import type { KeyValue } from "../etcd/port.js";
import { parseEntryKey } from "../keys.js";
import type { Lease } from "./lease.js";
import { deleteStrayKey } from "./cleanup.js";

/** An entry that an adopted lease already has. */
export interface AdoptedEntry {
  /** The directory of its key. */
  readonly name: string;
  readonly n: number;
  readonly key: Buffer;
  readonly value: string;
  readonly revision: bigint;
}

/** The entries of an orphaned lease: on each name, the first call that waits for such an entry takes over the oldest one. */
export class AdoptedEntries {
  /** By the directory of their keys: `name`, or `name/read` and `name/write`. */
  readonly #unclaimed = new Map<string, AdoptedEntry>();

  /** Deletes all but the oldest entry of a name at once, and the entries that no call has claimed within one TTL. */
  constructor(
    private readonly lease: Lease,
    places: readonly AdoptedEntry[],
  ) {
    for (const place of places) {
      if (this.#unclaimed.has(place.name)) this.#delete(place);
      else this.#unclaimed.set(place.name, place);
    }
    const timer = lease.connection.clock.after(lease.ttlMs, () => {
      for (const place of this.#unclaimed.values()) this.#delete(place);
      this.#unclaimed.clear();
    });
    lease.signal.addEventListener("abort", () => timer.cancel(), { once: true });
  }

  claim(directory: string): AdoptedEntry | undefined {
    const place = this.#unclaimed.get(directory);
    this.#unclaimed.delete(directory);
    return place;
  }

  /** Whether `kv`, in that directory, is an entry that can still be claimed. */
  has(directory: string, kv: KeyValue): boolean {
    const place = this.#unclaimed.get(directory);
    return place !== undefined && place.revision === kv.createRevision && place.key.equals(kv.key);
  }

  #delete({ name, key, revision }: AdoptedEntry): void {
    deleteStrayKey(this.lease, name, { key, createRevision: revision }, "delete an unclaimed place");
  }
}

/** Oldest first. */
export async function readAdopted(
  { client }: EtcdServices,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<AdoptedEntry[]> {
  const { keys } = await client.call((member, options) => member.timeToLive(leaseId, options), policy);
  const places = await Promise.all(
    keys.map(async (key) => {
      const parsed = parseEntryKey(key.toString(), leaseId);
      const [kv] = parsed ? (await client.range({ key }, policy)).kvs : [];
      if (!parsed || kv?.leaseId !== leaseId) return undefined;
      return { ...parsed, key, value: kv.value, revision: kv.createRevision };
    }),
  );
  return places.filter((place) => place !== undefined).sort((a, b) => (a.revision < b.revision ? -1 : 1));
}
