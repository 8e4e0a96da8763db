import type { KeyValue } from "../etcd/port.js";
import { KeyAudit, type AuditListener } from "./key-audit.js";
import { parseEntryKey, parseEntryValue } from "../keys.js";
import type { Lease } from "./lease.js";
import { deleteStrayKey } from "./cleanup.js";

/** When a key may have been left behind or may still be put: a late request most likely arrives soon after it was sent. */
const SOON_MS = 500;
/**
 * After a release (one TTL if that is shorter): nothing is known to be wrong, but a proxy may repeat a request silently.
 * The key then blocks other clients for hardly longer than the key of a holder that died.
 */
const LATER_MS = 30_000;
/**
 * How long no other entry gets a key for which a request may still be on its way: longer than a kernel keeps sending for
 * a closed connection (Linux: about 100 s) plus the time that etcd then works on a request (7 s by default). No bound
 * holds in every case: a member may be stopped for an hour with a request in its socket. For that reason the listing
 * continues. A key that is used again is safe: a late put changes nothing while the key exists.
 */
const DOUBT_MS = 120_000;

/** An entry that may have its key in etcd. */
export interface OwnedKey {
  readonly key: string;
  /** The queue that the key is in, or the folder of that queue. */
  readonly directory: string;
  readonly value: string;
  /** Its value has the form of all entries' values, with an ID. */
  readonly hasId: boolean;
  /** Create revision; undefined until it is known. */
  readonly revision: bigint | undefined;
}

const ofLease = new WeakMap<Lease, LatePutSweeper>();

/**
 * Deletes keys of our lease that are not an entry of ours. They come from puts that are applied late, from a proxy that
 * repeats requests, or from a restore of etcd from a snapshot. No caller would release them while the lease lives.
 */
export class LatePutSweeper implements AuditListener {
  /** The entries whose put is under way or done, by key. */
  readonly #owned = new Map<string, OwnedKey>();
  /** Keys that no entry may use, with the time when that ends. */
  readonly #doubted = new Map<string, number>();
  /** Directories in which the values of our entries have any form. */
  readonly #candidates = new Set<string>();
  /** The lists of the keys, for all who compare them with the keys that should be there. */
  readonly audit: KeyAudit;

  private constructor(private readonly lease: Lease) {
    this.audit = new KeyAudit(lease);
    this.audit.add(this);
    // The variable keeps the function out of V8's old space: see `EtcdClient`.
    const reconnected = (): void => this.soon();
    lease.reconnected = reconnected;
  }

  static of(lease: Lease): LatePutSweeper {
    const sweep = ofLease.get(lease) ?? new LatePutSweeper(lease);
    ofLease.set(lease, sweep);
    return sweep;
  }

  /** Whether a new entry must not use the key. */
  isTaken(key: string): boolean {
    return this.#owned.has(key) || this.#doubted.has(key);
  }

  /** false: it already has its key. */
  take(entry: OwnedKey): boolean {
    if (this.#owned.get(entry.key) === entry) return false;
    this.#owned.set(entry.key, entry);
    if (!entry.hasId) this.#candidates.add(entry.directory);
    return true;
  }

  /** From now on no entry has the key. false: this entry no longer had it. */
  release(entry: OwnedKey): boolean {
    if (this.#owned.get(entry.key) !== entry) return false;
    this.#owned.delete(entry.key);
    this.audit.within(Math.min(LATER_MS, this.lease.ttlMs));
    return true;
  }

  /** A request that puts or deletes the key may be on its way. */
  doubt(key: string): void {
    this.#doubted.set(key, this.lease.services.clock.monotonic() + DOUBT_MS);
    this.soon();
  }

  /** There may be keys that are not an entry of ours. */
  soon(): void {
    this.audit.within(SOON_MS);
  }

  /**
   * Whether another client has put this entry on our lease. It stays, unlike an entry of ours that leaves, one that waits to be
   * claimed, and a late put, which is deleted.
   */
  isForeign(kv: KeyValue): boolean {
    const name = this.#directoryOf(kv);
    return name !== undefined && !this.#isLate(name, kv) && this.lease.adopted?.has(name, kv) !== true;
  }

  audited(keys: readonly Buffer[] | undefined): void {
    const now = this.lease.services.clock.monotonic();
    for (const [key, until] of this.#doubted) if (until <= now) this.#doubted.delete(key);
    // Without a list, the doubted keys are read one by one.
    for (const key of keys ?? this.#doubted.keys()) {
      const text = key.toString();
      if (!this.#owned.has(text) && parseEntryKey(text, this.lease.leaseId)) void this.#examine(key);
    }
  }

  async #examine(key: string | Buffer): Promise<void> {
    const { client } = this.lease.services;
    // etcd refuses, or the session is over: the next list shows the key again.
    const answer = await client.range({ key }, this.lease.policy("read a late key")).catch(() => undefined);
    const [kv] = answer?.kvs ?? [];
    const name = kv && this.#strayIn(kv);
    if (!kv || name === undefined || this.lease.signal.aborted) return;
    // A new entry must not take the key, or find it and claim it, while its deletion is on its way.
    this.#doubted.set(kv.key.toString(), this.lease.services.clock.monotonic() + DOUBT_MS);
    deleteStrayKey(this.lease, { name, key: kv.key, revision: kv.createRevision }, "delete a late key");
  }

  /** The directory of a key that this library put with this lease and that is not an entry now. */
  #strayIn(kv: KeyValue): string | undefined {
    const name = this.#directoryOf(kv);
    if (name === undefined || !this.#isLate(name, kv)) return undefined;
    return this.lease.adopted?.has(name, kv) ? undefined : name;
  }

  /** The directory of a key that has the form of an entry of ours and is none now. */
  #directoryOf(kv: KeyValue): string | undefined {
    const { leaseId } = this.lease;
    if (kv.leaseId !== leaseId || this.#isOwned(kv)) return undefined;
    return parseEntryKey(kv.key.toString(), leaseId)?.name;
  }

  /** A user may attach keys of the same form to the lease, for example to list its services. */
  #isLate(directory: string, { value }: KeyValue): boolean {
    return isEntryValue(value) || this.#candidates.has(directory);
  }

  #isOwned(kv: KeyValue): boolean {
    const entry = this.#owned.get(kv.key.toString());
    if (!entry) return false;
    // Before its join is confirmed, its value identifies the key.
    if (entry.revision === undefined) return entry.value === kv.value;
    return entry.revision === kv.createRevision;
  }
}

const isEntryValue = (value: string): boolean => parseEntryValue(value).id !== undefined;
