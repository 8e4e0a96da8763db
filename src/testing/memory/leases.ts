import type { Scheduler } from "./event-queue.js";
import { LEASE_EXISTS, LEASE_NOT_FOUND, type Refusal, TTL_TOO_LARGE } from "./protocol.js";
import { type Random, shuffled } from "./random.js";
import type { Change, Store } from "./store.js";

/** Etcd's flags, with their defaults. */
const HEARTBEAT_MS = 100;
const ELECTION_MS = 1000;
/** Three halves of the election timeout, in whole heartbeats, rounded up to seconds: 2 (etcdserver/server.go). */
const ELECTION_TICKS = ELECTION_MS / HEARTBEAT_MS;
const MIN_TTL_SECONDS = Math.ceil((Math.floor((3 * ELECTION_TICKS) / 2) * HEARTBEAT_MS) / 1000);
const MAX_TTL_SECONDS = 9_000_000_000;
/** etcd checks for expired leases at this interval (runLoop in lease/lessor.go). */
const POLL_MS = 500;
/** 1,000 per second. */
const MOST_PER_POLL = 500;
/** So many revocations of expired leases run at the same time (maxPendingRevokes in etcdserver/server.go). */
const REVOKED_TOGETHER = 16;

export interface Lease {
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  /** The names of its keys, one character per byte. */
  readonly keys: Set<string>;
  /** Virtual time in milliseconds. */
  expiry: number;
  /** Until then, its revocation is on the way. */
  retryAt: number;
  /** Renewals that came after the expiry: they are answered when the lease is revoked, or when the lessor is demoted. */
  readonly waiting: ((isRevoked: boolean) => void)[];
}

export interface LeaseOptions {
  readonly store: Store;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** Revokes expired leases. Default: immediately. The lessor of a member of several is not primary at first. */
  readonly expired?: (leaseIds: readonly bigint[]) => void;
  /** Told first. */
  readonly onExpiry?: (leaseIds: readonly bigint[]) => void;
}

/** If the revocation of an expired lease was lost, it is repeated (expiredLeaseRetryInterval). */
const RETRY_MS = 3000;

/** The leases of the cluster, and their expiry (lease/lessor.go). */
export class Leases {
  readonly #store: Store;
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #expired: LeaseOptions["expired"];
  readonly #onExpiry: LeaseOptions["onExpiry"];
  /** Leases expire, and are renewed, at the leader only. */
  #primary: boolean;
  readonly #leases = new Map<bigint, Lease>();
  /** The lease of each key that has one. */
  readonly #byKey = new Map<string, bigint>();
  /** When the poll loop runs, modulo its interval. */
  readonly #phase: number;
  #pollAt: number | undefined;

  constructor({ store, scheduler, random, expired, onExpiry }: LeaseOptions) {
    this.#expired = expired;
    this.#onExpiry = onExpiry;
    this.#primary = expired === undefined;
    this.#store = store;
    this.#scheduler = scheduler;
    this.#random = random;
    this.#phase = scheduler.now + random.next() * POLL_MS;
    store.onChange((change) => this.#follow(change));
  }

  /** All leases that are not revoked, in the order of their grants. */
  get all(): readonly Lease[] {
    return [...this.#leases.values()];
  }

  /** How many are not revoked. */
  get size(): number {
    return this.#leases.size;
  }

  /** Leases expire, and are renewed, here. */
  get primary(): boolean {
    return this.#primary;
  }

  has(leaseId: bigint): boolean {
    return this.#leases.has(leaseId);
  }

  /** The granted TTL. */
  ttlOf(leaseId: bigint): number | undefined {
    return this.#leases.get(leaseId)?.ttlSeconds;
  }

  /** The names of the keys of a lease. */
  keysOf(leaseId: bigint): Iterable<string> {
    return this.#leases.get(leaseId)?.keys ?? [];
  }

  grant(leaseId: bigint, ttlSeconds: number): Refusal | Lease {
    // etcd chooses an ID if the request has none (LeaseGrant in etcdserver/v3_server.go).
    const id = leaseId === 0n ? this.#random.id() : leaseId;
    if (ttlSeconds > MAX_TTL_SECONDS) return TTL_TOO_LARGE;
    if (this.#leases.has(id)) return LEASE_EXISTS;
    const granted = Math.max(ttlSeconds, MIN_TTL_SECONDS);
    const lease: Lease = {
      leaseId: id,
      ttlSeconds: granted,
      keys: new Set(),
      expiry: 0,
      retryAt: 0,
      waiting: [],
    };
    this.#leases.set(id, lease);
    this.#refresh(lease);
    return lease;
  }

  /** Deletes the keys of the lease, in the order of their bytes and in one revision. */
  revoke(leaseId: bigint): Refusal | undefined {
    const lease = this.#leases.get(leaseId);
    if (!lease) return LEASE_NOT_FOUND;
    this.#store.write(() => {
      for (const key of [...lease.keys].sort(byBytes)) this.#store.delete(Buffer.from(key, "latin1"));
    }, leaseId);
    this.#leases.delete(leaseId);
    for (const answer of lease.waiting) answer(true);
    return undefined;
  }

  /** The member leads, and has applied all that was committed before: every lease gets its full TTL, and `extendMs` more. */
  promote(extendMs: number): void {
    this.#primary = true;
    for (const lease of this.#leases.values()) {
      lease.retryAt = 0;
      this.#refresh(lease, extendMs);
    }
  }

  /** The member does not lead, or has started again: no lease expires here. */
  demote(): void {
    this.#primary = false;
    this.#pollAt = undefined;
    for (const lease of this.#leases.values()) {
      lease.expiry = Infinity;
      for (const answer of lease.waiting.splice(0)) answer(false);
    }
  }

  /**
   * Calls `answer` with the granted TTL, or with 0 if there is no such lease, or no longer; `undefined`: the lessor is not
   * primary.
   */
  renew(leaseId: bigint, answer: (ttlSeconds: number | undefined) => void): void {
    if (!this.#primary) return answer(undefined);
    const lease = this.#leases.get(leaseId);
    if (!lease) return answer(0);
    if (lease.expiry <= this.#scheduler.now) {
      lease.waiting.push((isRevoked) => answer(isRevoked ? 0 : undefined));
      return;
    }
    this.#refresh(lease);
    answer(lease.ttlSeconds);
  }

  /** The remaining time in whole seconds, and the keys of the lease in the order of their bytes: etcd has them in no order. */
  timeToLive(leaseId: bigint): { ttlSeconds: number; keys: Buffer[] } {
    const lease = this.#leases.get(leaseId);
    if (!lease) return { ttlSeconds: -1, keys: [] };
    const keys = [...lease.keys].sort(byBytes).map((key) => Buffer.from(key, "latin1"));
    return { ttlSeconds: wholeSeconds(lease.expiry - this.#scheduler.now), keys };
  }

  /** A put with another lease, or without one, detaches the key from its lease, as a deletion does. */
  #follow({ events, names }: Change): void {
    for (let n = 0; n < events.length; n++) {
      const { kind, kv } = events[n]!;
      const name = names[n]!;
      const before = this.#byKey.get(name) ?? 0n;
      const after = kind === "PUT" ? kv.leaseId : 0n;
      if (before === after) continue;
      this.#leases.get(before)?.keys.delete(name);
      this.#leases.get(after)?.keys.add(name);
      if (after === 0n) this.#byKey.delete(name);
      else this.#byKey.set(name, after);
    }
  }

  #refresh(lease: Lease, extendMs = 0): void {
    lease.expiry = this.#primary ? this.#scheduler.now + lease.ttlSeconds * 1000 + extendMs : Infinity;
    if (this.#primary) this.#pollFor(lease.expiry);
  }

  /** The loop runs only when a lease may have expired: runs that find none have no effect. */
  #pollFor(expiry: number): void {
    const due = this.#nextPoll(expiry);
    if (this.#pollAt !== undefined && this.#pollAt <= due) return;
    this.#pollAt = due;
    this.#scheduler.after(due - this.#scheduler.now, () => {
      if (this.#pollAt === due) this.#poll();
    });
  }

  /** The first run of the loop at or after `time`, and after the present one. */
  #nextPoll(time: number): number {
    const { now } = this.#scheduler;
    const due = this.#phase + Math.ceil((time - this.#phase) / POLL_MS) * POLL_MS;
    return due > now ? due : due + POLL_MS;
  }

  #poll(): void {
    const { now } = this.#scheduler;
    this.#pollAt = undefined;
    const isDue = ({ expiry, retryAt }: Lease): boolean => expiry <= now && retryAt <= now;
    const expired = this.all.filter(isDue).sort((a, b) => a.expiry - b.expiry);
    this.#revokeExpired(expired.slice(0, MOST_PER_POLL));
    let next = Infinity;
    for (const { expiry, retryAt } of this.#leases.values()) next = Math.min(next, Math.max(expiry, retryAt));
    if (next < Infinity) this.#pollFor(next);
  }

  #revokeExpired(due: readonly Lease[]): void {
    if (due.length === 0) return;
    const leaseIds = due.map(({ leaseId }) => leaseId);
    this.#onExpiry?.(leaseIds);
    if (this.#expired !== undefined) {
      for (const lease of due) lease.retryAt = this.#scheduler.now + RETRY_MS;
      this.#expired(leaseIds);
      return;
    }
    for (let i = 0; i < due.length; i += REVOKED_TOGETHER)
      for (const { leaseId } of shuffled(due.slice(i, i + REVOKED_TOGETHER), this.#random))
        this.revoke(leaseId);
  }
}

const byBytes = (a: string, b: string): number => (a < b ? -1 : 1);

/**
 * etcd cuts the fraction off. Some time always passes between two requests, so that the answer to one right after the grant
 * is less than the TTL; virtual time may stand still there.
 */
const wholeSeconds = (ms: number): number => (ms > 0 ? Math.ceil(ms / 1000) - 1 : Math.trunc(ms / 1000) + 0);
