import type { EtcdServices } from "./connection.js";
import type { CallPolicy } from "../etcd/retry.js";
import type { KeyValue } from "../etcd/port.js";
import { parseEntryKey } from "../keys.js";
import { deleteStrayKey, type CreatedKey, type KeyOwner } from "./cleanup.js";

/** An entry that an adopted lease already has; `name` is the directory of its key. */
export interface AdoptedEntry extends CreatedKey {
  readonly n: number;
  readonly key: Buffer;
  readonly value: string;
}

/** The entries of an orphaned lease: on each name, the first call that waits for such an entry takes over the oldest one. */
export class AdoptedEntries {
  /** By the directory of their keys: `name`, or `name/read` and `name/write`. */
  readonly #unclaimed = new Map<string, AdoptedEntry>();

  /** Deletes all but the oldest entry of a name at once, and the entries that no call has claimed within one TTL. */
  constructor(
    private readonly lease: KeyOwner,
    entries: readonly AdoptedEntry[],
    ttlMs: number,
  ) {
    for (const entry of entries) {
      if (this.#unclaimed.has(entry.name)) this.#delete(entry);
      else this.#unclaimed.set(entry.name, entry);
    }
    const timer = lease.services.clock.after(ttlMs, () => {
      for (const entry of this.#unclaimed.values()) this.#delete(entry);
      this.#unclaimed.clear();
    });
    lease.signal.addEventListener("abort", () => timer.cancel(), { once: true });
  }

  /** `check` throws if the caller cannot take the entry over: it then remains for another caller. */
  claim(directory: string, check: (entry: AdoptedEntry) => void = () => {}): AdoptedEntry | undefined {
    const entry = this.#unclaimed.get(directory);
    if (entry) check(entry);
    this.#unclaimed.delete(directory);
    return entry;
  }

  /** Whether `kv`, in that directory, is an entry that can still be claimed. */
  has(directory: string, kv: KeyValue): boolean {
    const entry = this.#unclaimed.get(directory);
    return entry !== undefined && entry.revision === kv.createRevision && entry.key.equals(kv.key);
  }

  #delete(entry: AdoptedEntry): void {
    deleteStrayKey(this.lease, entry, "delete an unclaimed entry");
  }
}

/** Oldest first. */
export async function readAdopted(
  { client }: EtcdServices,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<AdoptedEntry[]> {
  const { keys } = await client.call((member, options) => member.timeToLive(leaseId, options), policy);
  const entries = await Promise.all(
    keys.map(async (key) => {
      const parsed = parseEntryKey(key.toString(), leaseId);
      const [kv] = parsed ? (await client.range({ key }, policy)).kvs : [];
      if (!parsed || kv?.leaseId !== leaseId) return undefined;
      return { ...parsed, key, value: kv.value, revision: kv.createRevision };
    }),
  );
  return entries.filter((entry) => entry !== undefined).sort((a, b) => (a.revision < b.revision ? -1 : 1));
}
