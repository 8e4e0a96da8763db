import type { KeyValue } from "../etcd/port.js";
import { KeyAudit, type AuditListener } from "./key-audit.js";
import { parseEntryKey, parseEntryValue } from "../keys.js";
import type { Lease } from "./lease.js";
import { deleteStrayKey } from "./cleanup.js";

/** When a key may have been left behind, or may come: a late request is most likely soon after it was sent. */
const SOON_MS = 500;
/**
 * After a release, or after one TTL: nothing is known to be wrong, but a proxy may repeat a request without a word. Then
 * the key blocks others for hardly longer than that of a holder that died.
 */
const LATER_MS = 30_000;
/**
 * For so long a key is given to no other place when a request for it may be on its way: longer than a kernel goes on
 * sending for a closed connection (Linux: about 100 s) and etcd then works on a request (7 s by default). There is no bound
 * that holds in any case: a member may stand still for an hour with a request in its socket. The lists go on for that
 * reason, and a key that is used again is safe: a late put changes nothing while the key is there.
 */
const DOUBT_MS = 120_000;

/** A place that may have its key in etcd. */
export interface OwnedKey {
  readonly key: string;
  /** The queue that the key is in, or the folder of it. */
  readonly directory: string;
  readonly value: string;
  /** Create revision; 0n until it is known. */
  readonly revision: bigint;
}

const ofLease = new WeakMap<Lease, LatePutSweeper>();

/**
 * Deletes keys of our lease that are no place of ours. They come from puts that are applied late, or once more by a proxy
 * that repeats requests, or with a restore of etcd from a snapshot. Nobody would release them while the lease lives.
 */
export class LatePutSweeper implements AuditListener {
  /** The places whose put is under way, or done, by key. */
  readonly #owned = new Map<string, OwnedKey>();
  /** Keys that are given to no place, with the time when that ends. */
  readonly #doubted = new Map<string, number>();
  /** Where our places have values of any form. */
  readonly #candidates = new Set<string>();
  readonly #audit: KeyAudit;

  private constructor(private readonly lease: Lease) {
    this.#audit = KeyAudit.of(lease);
    this.#audit.add(this);
    lease.reconnected = () => this.soon();
  }

  static of(lease: Lease): LatePutSweeper {
    const sweep = ofLease.get(lease) ?? new LatePutSweeper(lease);
    ofLease.set(lease, sweep);
    return sweep;
  }

  /** No place may use the key. */
  isTaken(key: string): boolean {
    return this.#owned.has(key) || this.#doubted.has(key);
  }

  /** false: it has its key already. */
  take(place: OwnedKey): boolean {
    if (this.#owned.get(place.key) === place) return false;
    this.#owned.set(place.key, place);
    if (!isPlaceValue(place.value)) this.#candidates.add(place.directory);
    return true;
  }

  /** From now on the key is nobody's. false: it was not this place's any more. */
  release(place: OwnedKey): boolean {
    if (this.#owned.get(place.key) !== place) return false;
    this.#owned.delete(place.key);
    this.#audit.within(Math.min(LATER_MS, this.lease.ttlMs));
    return true;
  }

  /** A request that puts the key may be on its way, or one that deletes it. */
  doubt(key: string): void {
    this.#doubted.set(key, this.lease.connection.clock.monotonic() + DOUBT_MS);
    this.soon();
  }

  /** There may be keys that are no place of ours. */
  soon(): void {
    this.#audit.within(SOON_MS);
  }

  audited(keys: readonly Buffer[] | undefined): void {
    const now = this.lease.connection.clock.monotonic();
    for (const [key, until] of this.#doubted) if (until <= now) this.#doubted.delete(key);
    // Without a list the keys that are in doubt are read one by one.
    for (const key of keys ?? this.#doubted.keys()) {
      const text = key.toString();
      if (!this.#owned.has(text) && parseEntryKey(text, this.lease.leaseId)) void this.#examine(key);
    }
  }

  async #examine(key: string | Buffer): Promise<void> {
    const { client } = this.lease.connection;
    // Refused, or the session is over: the next list shows the key again.
    const answer = await client.range({ key }, this.lease.policy("read a late key")).catch(() => undefined);
    const [kv] = answer?.kvs ?? [];
    const name = kv && this.#strayIn(kv);
    if (!kv || name === undefined || this.lease.signal.aborted) return;
    // A new place must not take the key, or find it and claim it, while its deletion is on the way.
    this.#doubted.set(kv.key.toString(), this.lease.connection.clock.monotonic() + DOUBT_MS);
    deleteStrayKey(this.lease, name, kv, "delete a late key");
  }

  /** The directory of a key that was put by this library, with this lease, and is no place now. */
  #strayIn(kv: KeyValue): string | undefined {
    const { leaseId, adopted } = this.lease;
    const name = parseEntryKey(kv.key.toString(), leaseId)?.name;
    if (name === undefined || kv.leaseId !== leaseId || this.#isOwned(kv)) return undefined;
    // A user may bind keys of the same form to the lease, to list its services for example.
    if (!isPlaceValue(kv.value) && !this.#candidates.has(name)) return undefined;
    return adopted?.has(name, kv) ? undefined : name;
  }

  #isOwned(kv: KeyValue): boolean {
    const place = this.#owned.get(kv.key.toString());
    // Not confirmed yet: its value tells.
    if (place?.revision === 0n) return place.value === kv.value;
    return place?.revision === kv.createRevision;
  }
}

const isPlaceValue = (value: string): boolean => parseEntryValue(value).id !== undefined;
