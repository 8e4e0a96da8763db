import { delayedBy } from "../../../src/keys.js";
import type { ServerEvent, Setting } from "../runner/history.js";
import { PairMap } from "./pair-map.js";
import { findTurnsByRank } from "./priority-rules.js";
import { FOREVER, order } from "./spans.js";

/** One key in a lock's queue, from its creation to its deletion. */
export interface Place extends Slot {
  readonly key: string;
  readonly lease: string;
  /** From the value that leasehold writes; undefined for other clients' keys. */
  readonly owner: string | undefined;
  /** The same for all attempts of one join. */
  readonly id: string | undefined;
  /** A semaphore's limit as this user has set it. */
  readonly permits: number | undefined;
  /** How many of them it takes. */
  readonly weight: number;
  /** Of a call with a priority: the lowest rank is next. `granted`: it's the key of its hold, and not its place. */
  readonly priority: { readonly rank: number; readonly granted: boolean } | undefined;
  /** It may stay while nobody has the lock. */
  readonly sticky: boolean;
  /** A newer call may take its place. */
  readonly supersedes: boolean;
  readonly seen: bigint;
  /** When its key was first put again. This is how a waiter for a permit announces its grant. */
  readonly announcedSeen: bigint | undefined;
  /** The revision at which a writer's key was put again: it is a reader from then on. */
  readonly downgraded: bigint | undefined;
  /** The older places at its creation left too little of its own number: its client puts its key again when it is granted. */
  readonly announces: boolean;
  readonly deleted: bigint | undefined;
  readonly deletedSeen: bigint | undefined;
  /** It is known to have been deleted with its lease. */
  readonly leaseEnded: boolean;
  /** Those behind it wait until then: for its delay key, if that is deleted later. */
  readonly freed: bigint | undefined;
  readonly freedSeen: bigint | undefined;
  /** The revision from which on no older place kept it from holding; undefined if that never happened. */
  readonly headSince: bigint | undefined;
  readonly headSeen: bigint | undefined;
}
export type GrowingPlace = { -readonly [K in keyof Place]: Place[K] };

/** Identifies a place: places of several locks may have been put at one revision. */
interface Slot {
  readonly lock: string;
  readonly create: bigint;
}

/** A map by place. */
export class ByPlace<T> {
  readonly #bySlot = new PairMap<string, bigint, [Slot, T]>();
  readonly #entries: [Slot, T][] = [];

  constructor(entries: Iterable<readonly [Slot, T]> = []) {
    for (const [slot, thing] of entries) this.set(slot, thing);
  }

  set(slot: Slot, thing: T): void {
    const { lock, create } = slot;
    const entry = this.#bySlot.get(lock, create);
    if (entry !== undefined) {
      entry[0] = slot;
      entry[1] = thing;
      return;
    }
    const added: [Slot, T] = [slot, thing];
    this.#bySlot.set(lock, create, added);
    this.#entries.push(added);
  }

  get({ lock, create }: Slot): T | undefined {
    return this.#bySlot.get(lock, create)?.[1];
  }

  has(slot: Slot): boolean {
    return this.get(slot) !== undefined;
  }

  /** In the order in which the places were set first. */
  entries(): readonly (readonly [Slot, T])[] {
    return this.#entries;
  }

  values(): T[] {
    return this.#entries.map(([, thing]) => thing);
  }
}

/** etcd's own record of every queue: per lock its places in create order, each with the revision of its turn. */
export function placesOf(
  server: readonly ServerEvent[],
  { locks }: Setting,
  delayKeys: readonly ServerEvent[] = [],
): ReadonlyMap<string, readonly GrowingPlace[]> {
  const byLock = new Map<string, GrowingPlace[]>();
  const living = new Map<string, GrowingPlace>();
  for (const event of server) {
    if (!event.key.startsWith(locks)) continue;
    if (event.type === "DELETE") end(living, event);
    else put(byLock, living, event);
  }
  delay([...byLock.values()].flat(), delayKeys);
  for (const lock of byLock.keys()) findTurns(lock, queueOf(lock, byLock));
  return byLock;
}

/** A place whose delay key is deleted later, or never, stands in the way of others until then. */
function delay(places: readonly GrowingPlace[], delayKeys: readonly ServerEvent[]): void {
  if (delayKeys.length === 0) return;
  const idOf = (key: string | undefined, create: bigint): string => `${create} ${key ?? ""}`;
  const placeOf = new Map(places.map((place) => [idOf(place.key, place.create), place]));
  for (const { type, key, create, rev, tSeen } of delayKeys) {
    const place = placeOf.get(idOf(delayedBy(key), create));
    if (!place) continue;
    const isFirst = place.deleted === undefined || (type === "DELETE" && rev <= place.deleted);
    if (type === "PUT") place.freed = place.freedSeen = undefined;
    else if (isFirst) [place.freed, place.freedSeen] = [place.deleted, place.deletedSeen];
    else [place.freed, place.freedSeen] = [rev, tSeen];
  }
}

/** The places of a lock and of the locks whose names lie under its own: the oldest comes first. */
export function queueOf(
  lock: string,
  byLock: ReadonlyMap<string, readonly GrowingPlace[]>,
): readonly GrowingPlace[] {
  const under = [...byLock].filter(([other]) => other === lock || other.startsWith(`${lock}/`));
  return under.flatMap(([, places]) => places).sort((a, b) => order(a.create, b.create));
}

/** "w2.1" of the owner "w2.1/shared". */
export const processOf = (owner: string | undefined) => owner?.split("/")[0];

/** A put on a living key (same create revision) keeps its place. */
function put(
  byLock: Map<string, GrowingPlace[]>,
  living: Map<string, GrowingPlace>,
  event: ServerEvent,
): void {
  const place = living.get(event.key);
  if (place?.create !== event.create) return begin(byLock, living, event);
  place.announcedSeen ??= event.tSeen;
  if (isWriter(place)) place.downgraded ??= event.rev;
}

function begin(
  byLock: Map<string, GrowingPlace[]>,
  living: Map<string, GrowingPlace>,
  event: ServerEvent,
): void {
  const { key, lease, create, tSeen } = event;
  const lock = key.slice(0, key.lastIndexOf("/")).replace(/\/(read|write)$/, "");
  const said = saidIn(event.value);
  const place = {
    ...{ lock, key, lease, create, ...said, seen: tSeen },
    ...{ announcedSeen: undefined, announces: false, downgraded: undefined },
    ...{
      deleted: undefined,
      deletedSeen: undefined,
      leaseEnded: false,
      freed: undefined,
      freedSeen: undefined,
      headSince: undefined,
      headSeen: undefined,
    },
  };
  living.set(key, place);
  const places = byLock.get(lock);
  if (places === undefined) byLock.set(lock, [place]);
  else places.push(place);
}

function end(living: Map<string, GrowingPlace>, event: ServerEvent): void {
  const place = living.get(event.key);
  if (place === undefined) return;
  place.deleted = event.rev;
  place.deletedSeen = event.tSeen;
  place.leaseEnded = event.leaseEnded === true;
  place.freed = event.rev;
  place.freedSeen = event.tSeen;
  living.delete(event.key);
}

/** Of two that wait. */
export const isBetter = (a: Place, b: Place): boolean => {
  const [one, other] = [a.priority?.rank ?? Infinity, b.priority?.rank ?? Infinity];
  return one === other ? a.create < b.create : one < other;
};

function findTurns(lock: string, places: readonly GrowingPlace[]): void {
  if (places.some(({ priority }) => priority)) return findTurnsByRank(places);
  let older: GrowingPlace[] = [];
  for (const place of places) {
    older = older.filter(({ freed = FOREVER }) => freed > place.create);
    if (place.lock === lock) {
      findTurn(place, older);
      place.announces = weightOf([...older, place]) > (place.permits ?? Infinity);
    }
    older.push(place);
  }
}

/** The turn comes with its creation, or when one of the places that were before it then has ended, or has become a reader. */
function findTurn(place: GrowingPlace, older: readonly GrowingPlace[]): void {
  const moments = older
    .flatMap(({ freed, freedSeen, downgraded, announcedSeen }) => [
      { rev: freed, seen: freedSeen },
      { rev: downgraded, seen: announcedSeen },
    ])
    .filter((moment): moment is { rev: bigint; seen: bigint | undefined } => moment.rev !== undefined)
    .sort((a, b) => order(a.rev, b.rev));
  for (const { rev, seen } of [{ rev: place.create, seen: place.seen }, ...moments]) {
    if ((place.deleted ?? FOREVER) <= rev) return;
    const below = older.filter(({ freed = FOREVER }) => freed > rev);
    if (!mayHold(place, below, rev)) continue;
    place.headSince = rev;
    place.headSeen = seen ?? place.seen;
    return;
  }
}

/**
 * `below`: the older places that are alive at `rev`, oldest first. A reader waits for all of them that are not readers by then; a permit
 * waits by the limit of the oldest one, which holds alone if it has no limit, and by the weights of all before it; all other modes
 * wait for every older place.
 */
function mayHold(place: Place, below: readonly Place[], rev: bigint): boolean {
  if (isReader(place)) return below.every((other) => isReader(other) || (other.downgraded ?? FOREVER) <= rev);
  if (place.permits === undefined) return below.length === 0;
  const [oldest = place] = below;
  return below.length === 0 || weightOf([...below, place]) <= (oldest.permits ?? 1);
}

export const weightOf = (places: readonly Pick<Place, "weight">[]): number =>
  places.reduce((sum, { weight }) => sum + weight, 0);

const isReader = ({ key, lock }: Place) => key.startsWith(`${lock}/read/`);
const isWriter = ({ key, lock }: Place) => key.startsWith(`${lock}/write/`);

interface Said {
  readonly owner?: unknown;
  readonly id?: unknown;
  readonly permits?: unknown;
  readonly weighted?: { readonly permits?: unknown; readonly weight?: unknown };
  readonly priority?: { readonly level: number; readonly agingMs: number; readonly granted?: boolean };
  readonly since?: unknown;
  readonly sticky?: unknown;
  readonly supersede?: unknown;
}

type InValue = Pick<Place, "owner" | "id" | "permits" | "weight" | "priority" | "sticky" | "supersedes">;

function saidIn(value: string): InValue {
  try {
    const said = JSON.parse(value) as Said | null;
    const { permits, weight = 1 } = said?.weighted ?? { permits: said?.permits };
    return {
      owner: typeof said?.owner === "string" ? said.owner : undefined,
      id: typeof said?.id === "string" ? said.id : undefined,
      permits: typeof permits === "number" ? permits : undefined,
      weight: typeof weight === "number" ? weight : 1,
      priority: rankIn(said),
      sticky: said?.sticky === true,
      supersedes: said?.supersede === true,
    };
  } catch {
    return {
      owner: undefined,
      id: undefined,
      permits: undefined,
      weight: 1,
      priority: undefined,
      sticky: false,
      supersedes: false,
    };
  }
}

function rankIn(said: Said | null): Place["priority"] {
  if (!said?.priority) return undefined;
  const { level, agingMs, granted = false } = said.priority;
  return { rank: Date.parse(String(said.since)) - level * agingMs, granted };
}
