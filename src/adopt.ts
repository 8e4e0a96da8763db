import type { Connection } from "./connection.js";
import type { CallPolicy } from "./etcd/members.js";
import { parsePlaceKey } from "./keys.js";
import type { Lease } from "./lease.js";

/** A place that an adopted lease has already. */
export interface AdoptedPlace {
  readonly name: string;
  readonly n: number;
  readonly key: Buffer;
  readonly value: string;
  readonly revision: bigint;
}

/** The places of an orphaned lease: the first `lock` on a name takes over the oldest one under it. */
export class AdoptedPlaces {
  readonly #unclaimed = new Map<string, AdoptedPlace>();

  /** A second place of a name, and whatever nobody has claimed within one TTL, is deleted. */
  constructor(
    private readonly lease: Lease,
    places: readonly AdoptedPlace[],
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

  claim(name: string): AdoptedPlace | undefined {
    const place = this.#unclaimed.get(name);
    this.#unclaimed.delete(name);
    return place;
  }

  #delete({ key, revision }: AdoptedPlace): void {
    const txn = {
      when: [{ kind: "created at", key, revision }],
      then: [{ kind: "delete", key }],
      otherwise: [],
    } as const;
    const { members } = this.lease.connection;
    // Refused, or the session is over: then the key ends with the lease.
    members.txn(txn, this.lease.policy("delete an unclaimed place")).catch(() => undefined);
  }
}

/** Oldest first. */
export async function readAdopted(
  { members }: Connection,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<AdoptedPlace[]> {
  const { keys } = await members.call((member, options) => member.timeToLive(leaseId, options), policy);
  const places = await Promise.all(
    keys.map(async (key) => {
      const parsed = parsePlaceKey(key.toString(), leaseId);
      const [kv] = parsed ? (await members.range({ key }, policy)).kvs : [];
      if (!parsed || kv?.leaseId !== leaseId) return undefined;
      return { ...parsed, key, value: kv.value, revision: kv.createRevision };
    }),
  );
  return places.filter((place) => place !== undefined).sort((a, b) => (a.revision < b.revision ? -1 : 1));
}
