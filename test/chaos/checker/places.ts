import type { ServerEvent, Setting } from "../lab/history.js";
import { order } from "./spans.js";

/** One key in a lock's queue, from its creation to its deletion. */
export interface Place extends Slot {
  readonly key: string;
  readonly lease: string;
  /** From the value that leasehold writes; undefined for other clients. */
  readonly owner: string | undefined;
  readonly seen: bigint;
  readonly deleted: bigint | undefined;
  readonly deletedSeen: bigint | undefined;
  /** The revision from which on no older place lived; undefined = it never came so far. */
  readonly headSince: bigint | undefined;
  readonly headSeen: bigint | undefined;
}
type Growing = { -readonly [K in keyof Place]: Place[K] };

/** Which place it is: those of several locks may have been put at once, at one revision. */
interface Slot {
  readonly lock: string;
  readonly create: bigint;
}

/** Things by place. */
export class ByPlace<T> {
  readonly #things = new Map<string, T>();

  constructor(entries: Iterable<readonly [Slot, T]> = []) {
    for (const [slot, thing] of entries) this.set(slot, thing);
  }

  set({ lock, create }: Slot, thing: T): void {
    this.#things.set(`${lock}@${create}`, thing);
  }

  get({ lock, create }: Slot): T | undefined {
    return this.#things.get(`${lock}@${create}`);
  }

  has(slot: Slot): boolean {
    return this.get(slot) !== undefined;
  }

  values(): T[] {
    return [...this.#things.values()];
  }
}

/** etcd's own account of every queue: per lock its places in create order, each with the revision of its turn. */
export function placesOf(
  server: readonly ServerEvent[],
  { locks }: Setting,
): ReadonlyMap<string, readonly Place[]> {
  const byLock = new Map<string, Growing[]>();
  const living = new Map<string, Growing>();
  for (const event of server) {
    if (!event.key.startsWith(locks)) continue;
    if (event.type === "DELETE") end(living, event);
    // A put on a living key (same create revision) changes its value, not its place.
    else if (living.get(event.key)?.create !== event.create) begin(byLock, living, event);
  }
  for (const lock of byLock.keys()) findHeads(lock, queueOf(lock, byLock));
  return byLock;
}

/** The places of a lock, and of those whose names lie under its own: whoever is older comes first. */
function queueOf(lock: string, byLock: ReadonlyMap<string, readonly Growing[]>): readonly Growing[] {
  const under = [...byLock].filter(([other]) => other === lock || other.startsWith(`${lock}/`));
  return under.flatMap(([, places]) => places).sort((a, b) => order(a.create, b.create));
}

/** "w2.1" of the owner "w2.1/shared". */
export const processOf = (owner: string | undefined) => owner?.split("/")[0];

function begin(byLock: Map<string, Growing[]>, living: Map<string, Growing>, event: ServerEvent): void {
  const { key, lease, create, tSeen } = event;
  const lock = key.slice(0, key.lastIndexOf("/"));
  const place = {
    ...{ lock, key, lease, create, owner: ownerIn(event.value), seen: tSeen },
    ...{ deleted: undefined, deletedSeen: undefined, headSince: undefined, headSeen: undefined },
  };
  living.set(key, place);
  const places = byLock.get(lock);
  if (places === undefined) byLock.set(lock, [place]);
  else places.push(place);
}

function end(living: Map<string, Growing>, event: ServerEvent): void {
  const place = living.get(event.key);
  if (place === undefined) return;
  place.deleted = event.rev;
  place.deletedSeen = event.tSeen;
  living.delete(event.key);
}

function findHeads(lock: string, places: readonly Growing[]): void {
  /** The last deletion among the older places. */
  let cleared = { rev: 0n, seen: 0n };
  for (const place of places) {
    const own = cleared.rev <= place.create;
    const since = own ? place.create : cleared.rev;
    if (place.lock === lock && (place.deleted === undefined || place.deleted > since)) {
      place.headSince = since;
      place.headSeen = own ? place.seen : cleared.seen;
    }
    if (place.deleted === undefined) return;
    if (place.deleted > cleared.rev) cleared = { rev: place.deleted, seen: place.deletedSeen ?? place.seen };
  }
}

function ownerIn(value: string): string | undefined {
  try {
    const owner: unknown = (JSON.parse(value) as { owner?: unknown } | null)?.owner;
    return typeof owner === "string" ? owner : undefined;
  } catch {
    return undefined;
  }
}
