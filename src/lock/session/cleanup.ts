import { EtcdRefusedError } from "../../errors.js";
import type { KeyValue, Txn } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import { aboutKey, delayLeaseOf, entryKey, parseEntryKey, parseEntryValue } from "../../keys.js";
import type { QueueEntry } from "../queue/entry.js";
import { inOwnContext } from "../../base/util/own-context.js";
import type { EtcdServices } from "./connection.js";
import type { Lease } from "./lease.js";

/** The longest wait for a call after the end of a session: the lease also expires by itself. */
const LAST_CALL_MS = 10_000;
const REVOCATION = ["lease"] as const;

/** A key in the queue of `path`, from its creation at `revision` on. A later key of the same bytes is another one. */
export interface CreatedKey {
  readonly path: string;
  readonly key: string | Buffer;
  readonly revision: bigint;
  /** Put together with it, so it is that one, or gone, while the key is there. */
  readonly delayKey?: string | undefined;
  /** In which a candidate says something of itself. */
  readonly aboutKey?: string | undefined;
  /** Of an entry: it holds, or has held. */
  readonly held?: boolean;
  /** Of an entry: no caller needs it any longer. */
  readonly leaving?: boolean;
}

/** Deletes exactly this key, and with it its delay key, and what it says of itself. */
export const deletion = ({ path, key, revision, delayKey, aboutKey }: CreatedKey): Txn => ({
  queues: [path],
  compare: [{ kind: "created at", key, revision }],
  success: [key, delayKey, aboutKey]
    .filter((each) => each !== undefined)
    .map((each) => ({ kind: "delete", key: each })),
  failure: [],
});

/** Deletes a key of our lease that is not an entry of ours. */
export function deleteStrayKey(lease: Lease, stray: CreatedKey, what: string): void {
  const parsed = lease.delay && parseEntryKey(stray.key.toString(), lease.leaseId);
  const delayKey = lease.delay && parsed && entryKey(parsed.name, lease.delay.leaseId, parsed.n);
  // If etcd rejects the delete or the session is over, the key ends with the lease.
  lease.services.client.txn(deletion({ ...stray, delayKey }), lease.policy(what)).catch(() => undefined);
}

/** Deletes the delay key of an entry that others have deleted, until etcd confirms it. No other entry gets its number before that. */
export function deleteDelayKey(lease: Lease, { name, path, key, revision, delayKey }: QueueEntry): void {
  if (delayKey === undefined || revision === undefined) return;
  lease.sweeper.doubt(key);
  const policy = { ...lease.policy(`leave the queue of "${name}"`), untilConfirmed: true };
  const txn = deletion({ path, key: delayKey, revision });
  // After the end of the session, the key ends with the delay lease.
  inOwnContext(() => lease.inFlight.track(lease.services.client.txn(txn, policy))).catch(() => undefined);
}

/** Deletes what an entry that others have deleted says of itself, unless the next entry with its key has put it anew. */
export function deleteAbout(lease: Lease, { name, path, revision, about }: QueueEntry): void {
  if (about === undefined || revision === undefined) return;
  const { key } = about;
  const txn: Txn = {
    queues: [path],
    compare: [{ kind: "modified at", key, revision }],
    success: [{ kind: "delete", key }],
    failure: [],
  };
  const policy = { ...lease.policy(`leave the queue of "${name}"`), untilConfirmed: true };
  inOwnContext(() => lease.inFlight.track(lease.services.client.txn(txn, policy))).catch(() => undefined);
}

/**
 * Deletes the entries of a session that has ended, as far as etcd permits it and answers within `withinMs`. `isIdle`: nothing was held.
 * Otherwise the delay lease stays, with the delay keys of the holds that nobody has released.
 */
export async function deleteEntries(
  { client }: EtcdServices,
  entries: Iterable<CreatedKey>,
  { withinMs, isIdle }: { readonly withinMs: number; readonly isIdle: boolean },
): Promise<void> {
  const policy = lastPolicy("leave the queues of a closed session", withinMs);
  const keysOf = ({ path, key, revision, delayKey, held, leaving }: CreatedKey): readonly CreatedKey[] => {
    if (isIdle) return [{ path, key, revision, delayKey }];
    const isInUse = held && !leaving;
    // By itself: the revocation may delete the entry before.
    const delay = delayKey === undefined || isInUse ? [] : [{ path, key: delayKey, revision }];
    return [{ path, key, revision }, ...delay];
  };
  const remove = (each: CreatedKey): Promise<unknown> =>
    client.txn(deletion(each), policy).catch(() => undefined);
  await Promise.all([...entries].flatMap(keysOf).map(remove));
}

/** Deletes the delay keys of entries that etcd has not confirmed, of a lease that has been revoked. */
export async function deleteDelayKeys(
  { client }: EtcdServices,
  entries: readonly QueueEntry[],
  withinMs: number,
): Promise<void> {
  const policy = lastPolicy("leave the queues of a closed session", withinMs);
  const remove = async ({ path, delayKey: key }: QueueEntry): Promise<void> => {
    if (key === undefined) return;
    const txn: Txn = { queues: [path], compare: [], success: [{ kind: "delete", key }], failure: [] };
    await client.txn(txn, policy).catch(() => undefined);
  };
  await Promise.all(entries.map(remove));
}

/** Resolves when the lease is gone, or when that cannot be confirmed within `withinMs`: it then expires by itself. */
export async function revokeLease(
  { client }: EtcdServices,
  leaseId: bigint,
  withinMs: number,
): Promise<void> {
  await client
    .call((member, options) => member.revoke(leaseId, options), {
      ...lastPolicy("revoke a lease", withinMs),
      answers: REVOCATION,
    })
    // The lease is gone, etcd is unreachable, or etcd refuses since our user may not write one of its keys: it expires.
    .catch(() => undefined);
}

/** For calls after the end of a session: limited to the time that its lease has left. */
const lastPolicy = (what: string, withinMs: number): CallPolicy => ({
  what,
  attemptMs: Math.max(100, withinMs / 4),
  giveUpMs: Math.min(withinMs, LAST_CALL_MS),
});

/** An entry that an adopted lease already has; `path` is the directory of its key. */
export interface AdoptedEntry extends CreatedKey {
  readonly n: number;
  readonly key: Buffer;
  readonly value: string;
}

/** A candidate of an election may have any value, and no such directory but by its own choice. */
const isDowngraded = ({ path, value }: AdoptedEntry): boolean =>
  path.endsWith("/write") && parseEntryValue(value).downgraded === true;

/** The key of a call that waits, and never holds. */
const isPlace = ({ value }: Pick<AdoptedEntry, "value">): boolean => {
  const { priority } = parseEntryValue(value);
  return priority !== undefined && !priority.granted;
};

/** The entries of an orphaned lease: on each name, the first call that waits for such an entry takes over the oldest one. */
export class AdoptedEntries {
  /** By the directory of their keys: `path`, or `path/read` and `path/write`. */
  readonly #unclaimed = new Map<string, AdoptedEntry>();
  #isOver = false;

  /**
   * Deletes all but the oldest entry of a name at once, and the entries that no call has claimed within one TTL. A writer that has become
   * a reader is deleted, too: no call can take it over, since readers hold beside it. So is the place of a call with a priority.
   */
  constructor(
    private readonly lease: Lease,
    entries: readonly AdoptedEntry[],
    ttlMs: number,
  ) {
    for (const entry of entries) {
      if (isDowngraded(entry) || isPlace(entry) || this.#unclaimed.has(entry.path)) this.#delete(entry);
      else this.#unclaimed.set(entry.path, entry);
    }
    const timer = lease.services.clock.after(ttlMs, () => {
      this.#isOver = true;
      for (const entry of this.#unclaimed.values()) this.#delete(entry);
      this.#unclaimed.clear();
      // Another client may have deleted an entry, and not its delay key.
      if (lease.delay) lease.sweeper.soon();
    });
    lease.signal.addEventListener("abort", () => timer.cancel(), { once: true });
  }

  /** `check` throws if the caller cannot take the entry over: it then remains for another caller. */
  claim(directory: string, fits: (entry: AdoptedEntry) => boolean = () => true): AdoptedEntry | undefined {
    const entry = this.#unclaimed.get(directory);
    if (!entry || !fits(entry)) return undefined;
    this.#unclaimed.delete(directory);
    return entry;
  }

  /** The call that has claimed it could not take it over: the next one may. */
  giveBack(entry: AdoptedEntry): void {
    if (this.#isOver) this.#delete(entry);
    else this.#unclaimed.set(entry.path, entry);
  }

  /** Whether `kv`, in that directory, is an entry that can still be claimed. */
  has(directory: string, kv: KeyValue): boolean {
    const entry = this.#unclaimed.get(directory);
    if (entry?.revision !== kv.createRevision) return false;
    return entry.key.equals(kv.key) || kv.leaseId === delayLeaseOf(this.lease.leaseId);
  }

  #delete(entry: AdoptedEntry): void {
    deleteStrayKey(this.lease, entry, "delete an unclaimed entry");
  }
}

/** undefined: there is no such lease. */
async function everyKeyOfLease(
  { client }: EtcdServices,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<readonly Buffer[] | undefined> {
  const { ttlSeconds, keys } = await client.call(
    (member, options) => member.timeToLive(leaseId, options),
    policy,
  );
  return ttlSeconds < 0 ? undefined : keys;
}

/**
 * Whether a key is under the names of the cluster: the others are of no concern to it. A key with no name between the prefix
 * `prod/` and the ID belongs to the name `prod` of a cluster without the prefix.
 */
export function underPrefix({ options: { prefix } }: EtcdServices): (key: Buffer) => boolean {
  const start = Buffer.from(prefix);
  return (key) => key.subarray(0, start.length).equals(start) && key.lastIndexOf("/") > start.length;
}

/** The keys of a lease under the names of the cluster. undefined: there is no such lease. */
export async function keysOfLease(
  services: EtcdServices,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<readonly Buffer[] | undefined> {
  return (await everyKeyOfLease(services, leaseId, policy))?.filter(underPrefix(services));
}

/**
 * Whether the lease one above is the delay lease of `leaseId`. etcd counts its IDs up, so it may be that of another client. Each key of a delay
 * lease is that of an entry which was put together with it, or which this library has put and others have deleted; and a lease with
 * keys has a delay lease with keys, unless all are permits or calls with a priority that wait, which have no delay keys.
 */
export async function hasDelayLease(
  { client }: EtcdServices,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<boolean> {
  const delayId = delayLeaseOf(leaseId);
  const keysOf = async (id: bigint): Promise<readonly Buffer[]> =>
    (await client.call((member, options) => member.timeToLive(id, options), policy)).keys;
  const read = async (key: string | Buffer): Promise<KeyValue | undefined> =>
    (await client.range({ key }, policy)).kvs[0];
  const isDelayKey = async (key: Buffer): Promise<boolean> => {
    const parsed = parseEntryKey(key.toString(), delayId);
    if (!parsed) return false;
    const [own, entry] = await Promise.all([read(key), read(entryKey(parsed.name, leaseId, parsed.n))]);
    if (entry) return entry.createRevision === own?.createRevision;
    return parseEntryValue(own?.value ?? "").id !== undefined;
  };
  const isPermit = async (key: Buffer): Promise<boolean> => {
    const { value = "" } = (await read(key)) ?? {};
    const { permits, weighted } = parseEntryValue(value);
    return permits !== undefined || weighted !== undefined || isPlace({ value });
  };
  try {
    const [keys, delayKeys] = await Promise.all([keysOf(leaseId), keysOf(delayId)]);
    if (delayKeys.length === 0) return (await Promise.all(keys.map(isPermit))).every((is) => is);
    return (await Promise.all(delayKeys.map(isDelayKey))).every((is) => is);
  } catch (error) {
    // A key that the user may not read is none of this library's.
    if (error instanceof EtcdRefusedError && error.reason === "permission") return false;
    throw error;
  }
}

/** Oldest first. */
export async function readAdopted(
  services: EtcdServices,
  leaseId: bigint,
  policy: CallPolicy,
): Promise<AdoptedEntry[]> {
  const { client } = services;
  const all = (await everyKeyOfLease(services, leaseId, policy)) ?? [];
  const texts = new Set(all.map(String));
  const entries = await Promise.all(
    all.filter(underPrefix(services)).map(async (key) => {
      const parsed = parseEntryKey(key.toString(), leaseId);
      const [kv] = parsed ? (await client.range({ key }, policy)).kvs : [];
      if (!parsed || kv?.leaseId !== leaseId) return undefined;
      const entry = { path: parsed.name, n: parsed.n, key, value: kv.value, revision: kv.createRevision };
      const beside = aboutKey(key.toString());
      return { ...entry, aboutKey: texts.has(beside) ? beside : undefined };
    }),
  );
  return entries.filter((entry) => entry !== undefined).sort((a, b) => (a.revision < b.revision ? -1 : 1));
}
