import type { KeyValue } from "../../etcd/port.js";
import { entryKey, parseEntryKey, parseEntryValue } from "../../keys.js";
import type { KeyWatch } from "../hold/key-watch.js";
import type { JoinedEntry, QueueEntry } from "../queue/entry.js";
import type { Timer } from "../../base/util/clock.js";
import { deleteStrayKey, keysOfLease, underPrefix } from "./cleanup.js";
import type { Lease } from "./lease.js";

/** An idle session lists its keys this often. */
const MAX_PAUSE_MS = 300_000;

interface AuditListener {
  /** `keys`: all keys of the lease; undefined when etcd refuses to list them. The list may show an older state. */
  audited(keys: readonly Buffer[] | undefined): void;
}

/**
 * Lists all keys of one lease in one request, for listeners that compare them with the keys it should have. The pause
 * doubles after each list, so the keys of a late request are found after about as long again as the request took. A
 * listener with a reason to list sooner shortens the pause. One timer and one request serve all keys of a session.
 */
class KeyAudit {
  readonly #listeners: AuditListener[] = [];
  /** The pause after the next list. */
  #pauseMs = MAX_PAUSE_MS;
  #timer: Timer | undefined;
  #dueAt = Infinity;
  #listing = false;

  constructor(private readonly lease: Lease) {
    if (!lease.signal.aborted) lease.services.aborts.add(lease.signal, () => this.#timer?.cancel());
  }

  add(listener: AuditListener): void {
    this.#listeners.push(listener);
  }

  /** Lists the keys within about `delayMs`. */
  within(delayMs: number): void {
    if (this.lease.signal.aborted) return;
    // A list under way may show the state before this call.
    if (this.#listing) this.#pauseMs = Math.min(this.#pauseMs, delayMs);
    else if (this.lease.services.clock.monotonic() + delayMs < this.#dueAt) this.#arm(delayMs);
    else this.#pauseMs = Math.min(this.#pauseMs, 2 * delayMs);
  }

  #arm(delayMs: number): void {
    const { clock, timers } = this.lease.services;
    this.#timer?.cancel();
    this.#pauseMs = Math.min(2 * delayMs, MAX_PAUSE_MS);
    this.#dueAt = clock.monotonic() + delayMs;
    this.#timer = timers.add(delayMs * (0.75 + clock.random() / 2), () => void this.#list());
  }

  async #list(): Promise<void> {
    this.#listing = true;
    const keys = await this.#keys();
    if (this.lease.signal.aborted) return;
    for (const listener of this.#listeners) listener.audited(keys);
    this.#listing = false;
    this.#arm(this.#pauseMs);
  }

  /** Retries until a member answers. */
  async #keys(): Promise<readonly Buffer[] | undefined> {
    const { leaseId, services, delay } = this.lease;
    const policy = this.lease.policy("list the keys of the lease");
    try {
      const keys = await keysOfLease(services, leaseId, policy);
      // A renewal decides that. Until then, its delay keys are not for us to delete.
      if (!keys) return void this.lease.renew();
      return delay ? [...keys, ...((await keysOfLease(services, delay.leaseId, policy)) ?? [])] : keys;
    } catch {
      // The session is over, or etcd refuses: this user may not read all keys of the lease, or they exceed one answer.
      return undefined;
    }
  }
}

/** A hold that is shorter than this does not pay for a watch of its own key. */
const LONG_HOLD_MS = 1000;
/** Holds that reach that age within this time of each other begin their watches together. */
const GRAIN_MS = 100;
/** The number of keys that are read at a time when thousands of watches moved to another member at once. */
const READ_AT_ONCE = 32;
const AUDIT_MS = 30_000;
/** Node.js needs about 13 µs for each key of a list, most of it for garbage: more holds are compared less often. */
const AUDIT_MS_PER_HOLD = 30;
const MAX_AUDIT_MS = 300_000;

/**
 * Schedules the watches and reads of the keys that one session holds. All holds with a watch share one list of the session's
 * keys: every 30 s, and with more than 1,000 holds less often, up to every 5 minutes.
 */
export class KeyWatchSchedule implements AuditListener {
  /** Holds that are not long yet, most of them without a watch: most are released before. */
  readonly #young = new Map<KeyWatch, Timer>();
  readonly #watched = new Set<KeyWatch>();
  readonly #unread = new Set<KeyWatch>();
  #reading = 0;

  constructor(
    private readonly lease: Lease,
    private readonly audit: KeyAudit,
  ) {
    audit.add(this);
  }

  /** Adds a hold that has just been granted. Its watch begins `atOnce`, or after `LONG_HOLD_MS`. */
  add(hold: KeyWatch, atOnce: boolean): void {
    const begin = (): void => {
      this.#watched.add(hold);
      this.#auditLater();
      hold.watch();
    };
    const long = (): void => {
      this.#young.delete(hold);
      if (!atOnce) begin();
      hold.isLong();
    };
    if (atOnce) begin();
    this.#young.set(hold, this.lease.services.timers.add(LONG_HOLD_MS, long, GRAIN_MS));
  }

  delete(hold: KeyWatch): void {
    this.#young.get(hold)?.cancel();
    this.#young.delete(hold);
    this.#watched.delete(hold);
    this.#unread.delete(hold);
  }

  /** Reads the key of `hold`, after those that are waiting to be read. */
  read(hold: KeyWatch): void {
    this.#unread.add(hold);
    this.#readNext();
  }

  #readNext(): void {
    for (const hold of this.#unread) {
      if (this.#reading === READ_AT_ONCE) return;
      this.#unread.delete(hold);
      this.#reading++;
      void hold.read().then(() => {
        this.#reading--;
        this.#readNext();
      });
    }
  }

  /**
   * Bounds the damage of a lost event: a key that is missing from the list is read. The list may be of an older state: the
   * read decides, and a key that the list shows for too long is missing from the next one. The list has no create
   * revisions, so a key that was deleted and put again in between, with our own lease, looks unchanged. That takes a lost
   * event *and* a client that forges our keys, and a fence still rejects the former holder.
   */
  audited(keys: readonly Buffer[] | undefined): void {
    // etcd may refuse the list forever: then every key is read.
    const listed = new Set(keys?.map((key) => key.toString()));
    for (const hold of this.#watched) if (!listed.has(hold.key)) this.read(hold);
    if (this.#watched.size > 0) this.#auditLater();
  }

  #auditLater(): void {
    const holds = this.#watched.size + this.#young.size;
    this.audit.within(Math.min(MAX_AUDIT_MS, Math.max(AUDIT_MS, holds * AUDIT_MS_PER_HOLD)));
  }
}

/** A call that waits in one queue or in several. */
export interface AuditedWait {
  /** The entries whose end nothing else would report in time. */
  readonly unwatched: readonly JoinedEntry[];
  /** The key of one of them is gone. */
  placeLost(entry: JoinedEntry): void;
}

const PLACES_MS = 4_000;
/** For each hold and each wait: as each key of a list takes 13 µs, the lists take about a hundredth of a core at most. */
const PLACES_MS_PER_KEY = 1;
/** etcd takes 128 operations in a request. */
const PLACES_AT_ONCE = 100;

/**
 * Finds waiting entries whose key is gone, although no watch of theirs reports it: those that are far from their turn, and those
 * behind an entry of their own session. Their callers would be out of the queue until they read it, half a minute later. One list of
 * the session's keys every 4 s serves all of them; with more than 4,000 holds and waits, it comes less often.
 */
export class PlaceAudit implements AuditListener {
  constructor(
    private readonly lease: Lease,
    private readonly audit: KeyAudit,
  ) {
    audit.add(this);
  }

  /** There is a place that no watch reports. */
  begin(): void {
    const { holds, waits } = this.lease;
    this.audit.within(Math.max(PLACES_MS, (holds.size + waits.size) * PLACES_MS_PER_KEY));
  }

  /** The list may show a state before the join, so a read decides. If etcd refuses to list, only the slow reads of the waits remain. */
  audited(keys: readonly Buffer[] | undefined): void {
    const places = [...this.lease.waits].flatMap((wait) =>
      (wait.unwatched ?? []).map((entry) => ({ wait, entry })),
    );
    if (keys === undefined) return;
    if (places.length > 0) this.begin();
    const listed = new Set(keys.map((key) => key.toString()));
    const missing = places.filter(({ entry }) => !listed.has(entry.key));
    for (let n = 0; n < missing.length; n += PLACES_AT_ONCE)
      void this.#examine(missing.slice(n, n + PLACES_AT_ONCE));
  }

  /** Never rejects: if etcd refuses, or the session is over, the next list shows the same. */
  async #examine(
    places: readonly { readonly wait: Partial<AuditedWait>; readonly entry: JoinedEntry }[],
  ): Promise<void> {
    const keys = places.map(({ entry: { key } }) => ({ key }));
    const { client, watches } = this.lease.services;
    const reading = client.ranges(keys, this.lease.policy("read the own places"));
    const answer = await reading.catch(() => undefined);
    places.forEach(({ wait, entry }, n) => {
      const found = answer?.ranges[n]?.kvs;
      if (!answer || !found || found.some((kv) => entry.is(kv))) return;
      // Its turn may come before the watch that it has by now reports the deletion.
      if (found.length === 0) watches.shownGone(entry.key, answer.header.revision);
      wait.placeLost?.(entry);
    });
  }
}

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
/** Of so many directories it is remembered that values have any form there: names come and go. */
const MAX_CANDIDATES = 10_000;

/**
 * Deletes keys of our lease that are not an entry of ours. They come from puts that are applied late, from a proxy that
 * repeats requests, or from a restore of etcd from a snapshot. No caller would release them while the lease lives.
 */
export class LatePutSweeper implements AuditListener {
  /** The entries whose put is under way or done, by key. */
  readonly #owned = new Map<string, QueueEntry>();
  /** Keys that no entry may use, with the time when that ends. */
  readonly #doubted = new Map<string, number>();
  /** Directories in which the values of our entries have any form, the last ones last. */
  readonly #candidates = new Set<string>();
  /** Keys that are no entries, with the time until which each is looked for, and what deletes it. */
  readonly #left = new Map<string, { readonly until: number; readonly remove: () => Promise<unknown> }>();
  /** The lists of the keys, for all who compare them with the keys that should be there. */
  readonly audit: KeyAudit;

  constructor(private readonly lease: Lease) {
    this.audit = new KeyAudit(lease);
    this.audit.add(this);
  }

  /** Whether a new entry must not use the key. */
  isTaken(key: string): boolean {
    return this.#owned.has(key) || this.#doubted.has(key);
  }

  /** false: it already has its key. */
  take(entry: QueueEntry): boolean {
    if (this.#owned.get(entry.key) === entry) return false;
    this.#owned.set(entry.key, entry);
    if (!entry.hasId) this.#addCandidate(entry.directory);
    return true;
  }

  #addCandidate(directory: string): void {
    this.#candidates.delete(directory);
    this.#candidates.add(directory);
    const [oldest] = this.#candidates;
    if (this.#candidates.size > MAX_CANDIDATES && oldest !== undefined) this.#candidates.delete(oldest);
  }

  /** From now on no entry has the key. false: this entry no longer had it. */
  release(entry: QueueEntry): boolean {
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

  /**
   * The session has deleted a key that is no entry, and that it never puts again. `remove` does so once more if a late put has brought it back.
   * `inDoubt`: a request that puts it may be on its way.
   */
  left(key: string, inDoubt: boolean, remove: () => Promise<unknown>): void {
    this.#left.set(key, { until: this.lease.services.clock.monotonic() + DOUBT_MS, remove });
    if (inDoubt) this.soon();
    else this.audit.within(Math.min(LATER_MS, this.lease.ttlMs));
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
      const own = this.#ownKeyOf(key.toString());
      if (own !== undefined && !this.#owned.has(own)) void this.#examine(key);
    }
    if (this.#left.size > 0) this.#removeLeft(keys, now);
  }

  #removeLeft(keys: readonly Buffer[] | undefined, now: number): void {
    const listed = keys && new Set(keys.map((key) => key.toString()));
    const isListed = underPrefix(this.lease.services);
    for (const [key, { until, remove }] of this.#left) {
      if (until <= now) this.#left.delete(key);
      // If etcd rejects it, or the session is over, the key ends with the lease.
      if (!listed || listed.has(key) || !isListed(Buffer.from(key))) remove().catch(() => undefined);
    }
  }

  /** The key of the entry that a key with the form of an entry, or of its delay key, belongs to. */
  #ownKeyOf(key: string): string | undefined {
    const { leaseId, delay } = this.lease;
    if (parseEntryKey(key, leaseId)) return key;
    const parsed = delay && parseEntryKey(key, delay.leaseId);
    return parsed && entryKey(parsed.name, leaseId, parsed.n);
  }

  async #examine(key: string | Buffer): Promise<void> {
    const { client } = this.lease.services;
    // etcd refuses, or the session is over: the next list shows the key again.
    const answer = await client.range({ key }, this.lease.policy("read a late key")).catch(() => undefined);
    const [kv] = answer?.kvs ?? [];
    const path = kv && this.#strayIn(kv);
    if (!kv || path === undefined || this.lease.signal.aborted) return;
    // A new entry must not take the key, or find it and claim it, while its deletion is on its way.
    this.#doubted.set(kv.key.toString(), this.lease.services.clock.monotonic() + DOUBT_MS);
    deleteStrayKey(this.lease, { path, key: kv.key, revision: kv.createRevision }, "delete a late key");
  }

  /** The directory of a key that this library put with this lease and that is not an entry now. */
  #strayIn(kv: KeyValue): string | undefined {
    const name = this.#directoryOf(kv) ?? this.#directoryOfDelay(kv);
    if (name === undefined || !this.#isLate(name, kv)) return undefined;
    return this.lease.adopted?.has(name, kv) ? undefined : name;
  }

  /** The directory of a key that has the form of an entry of ours and is none now. */
  #directoryOf(kv: KeyValue): string | undefined {
    const { leaseId } = this.lease;
    if (kv.leaseId !== leaseId || this.#isOwned(kv)) return undefined;
    return parseEntryKey(kv.key.toString(), leaseId)?.name;
  }

  /** The directory of a delay key that no entry of ours has now. */
  #directoryOfDelay(kv: KeyValue): string | undefined {
    const { delay } = this.lease;
    if (kv.leaseId !== delay?.leaseId) return undefined;
    const key = kv.key.toString();
    return this.#owned.has(this.#ownKeyOf(key) ?? key) ? undefined : parseEntryKey(key, delay.leaseId)?.name;
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
