// Leases for keys that outlive the process which puts them: nobody renews them, so that etcd deletes the keys by its own clock.
import { LeaseExistsError, type Member } from "../../etcd/port.js";
import { plainLease } from "../../keys.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Moment } from "../../base/util/clock.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";

/**
 * How long a key stays from the time on at which its put is sent: at least so long, and up to an eighth longer, or 5 s if that is more; or
 * at most so long, and up to an eighth shorter. Before that, a time between two steps is rounded up, or down, by an eighth at most, or 1 s.
 */
export interface Lifetime {
  readonly ms: number;
  readonly atLeast: boolean;
}

/** Keys that are put within this part of their lifetime share a lease: 10,000 keys of a day need eight. */
const SHARED_PART = 1 / 8;
/** Or so: etcd deletes all keys of a lease in one transaction, for which everything else waits. */
const MOST_KEYS = 1000;
/** Requests may take so long: the grant, and then the put. */
const REQUESTS_MS = 5000;
/** Where each grant takes so long, a mark goes early. */
const MOST_TRIES = 3;
const ANSWERS = ["quota", "lease exists"] as const;

interface SharedLease {
  readonly leaseId: bigint;
  readonly granted: Promise<void>;
  /** When it was asked for. */
  readonly since: Moment;
  /** New keys may use it for so long after that: Infinity until it is granted. */
  sharedMs: number;
  /** So many keys have been put with it, or may be. */
  keys: number;
}

const [MINUTE_MS, HOUR_MS, DAY_MS] = [60_000, 3_600_000, 86_400_000];
/** The steps to which times are rounded, so that near ones share leases: each from eight times its length on, and the first one always. */
const STEPS_MS = [
  ...[1000, 5000, 15_000, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS],
  ...[HOUR_MS, 3 * HOUR_MS, 12 * HOUR_MS, DAY_MS],
];

function rounded({ ms, atLeast }: Lifetime): Lifetime {
  const step = STEPS_MS.findLast((each) => each <= ms * SHARED_PART) ?? 1000;
  return { ms: step * (atLeast ? Math.ceil(ms / step) : Math.floor(ms / step)), atLeast };
}

const keyOf = ({ ms, atLeast }: Lifetime): string => `${atLeast} ${ms}`;

const mayTake = ({ since, sharedMs, keys }: SharedLease, now: Moment): boolean =>
  keys < MOST_KEYS && passedMs(since, now) < sharedMs;

/** etcd goes on while this machine is suspended. */
const passedMs = (since: Moment, now: Moment): number =>
  Math.max(now.monotonic - since.monotonic, now.suspend - since.suspend);

const known = new WeakMap<EtcdServices, MarkLeases>();

/** Those of one cluster. */
export class MarkLeases {
  /** By their lifetime. */
  readonly #shared = new Map<string, SharedLease>();

  private constructor(private readonly services: EtcdServices) {}

  static of(services: EtcdServices): MarkLeases {
    let leases = known.get(services);
    if (leases === undefined) known.set(services, (leases = new MarkLeases(services)));
    return leases;
  }

  /** Whether `for` would send no request. */
  has(lifetimes: readonly Lifetime[]): boolean {
    const now = this.services.clock.now();
    return lifetimes.every((each) => {
      const shared = this.#shared.get(keyOf(rounded(each)));
      return shared !== undefined && mayTake(shared, now);
    });
  }

  /** One for each lifetime. The first call of an eighth of it sends a request. @throws the reason of an aborted `signal`. */
  async for(lifetimes: readonly Lifetime[], signal: AbortSignal): Promise<readonly bigint[]> {
    return Promise.all(lifetimes.map((each) => this.#young(each, signal)));
  }

  async #young(lifetime: Lifetime, signal: AbortSignal): Promise<bigint> {
    for (let tries = 1; ; tries++) {
      const shared = this.#leaseFor(lifetime);
      await this.#within(shared.granted, signal);
      const passed = passedMs(shared.since, this.services.clock.now());
      if (passed < shared.sharedMs + REQUESTS_MS / 2 || tries === MOST_TRIES) return shared.leaseId;
      // The grant was answered so late that the put has too little time.
      this.forget([shared.leaseId]);
    }
  }

  /** No key was put with them. */
  unused(leases: readonly bigint[]): void {
    for (const shared of this.#shared.values()) if (leases.includes(shared.leaseId)) shared.keys--;
  }

  /** etcd has none of them any more: somebody has revoked it, or this process has stood still for long. */
  forget(leases: readonly bigint[]): void {
    for (const [key, { leaseId }] of this.#shared) if (leases.includes(leaseId)) this.#shared.delete(key);
  }

  #within(granted: Promise<void>, signal: AbortSignal): Promise<void> {
    const onTimeout = (): Error => signal.reason as Error;
    return settleWithin(granted, { signal, timeoutMs: undefined }, this.services, { onTimeout });
  }

  #leaseFor(given: Lifetime): SharedLease {
    const lifetime = rounded(given);
    const key = keyOf(lifetime);
    const shared = this.#shared.get(key);
    const since = this.services.clock.now();
    if (shared && mayTake(shared, since)) {
      shared.keys++;
      return shared;
    }
    for (const [each, old] of this.#shared) if (!mayTake(old, since)) this.#shared.delete(each);
    const leaseId = plainLease(this.services.clock.randomId());
    const made: SharedLease = {
      leaseId,
      granted: inOwnContext(() => this.#grant(leaseId, lifetime)),
      since,
      sharedMs: Infinity,
      keys: 1,
    };
    this.#shared.set(key, made);
    made.granted.then(
      () => (made.sharedMs = SHARED_PART * lifetime.ms),
      () => this.forget([leaseId]),
    );
    return made;
  }

  async #grant(leaseId: bigint, { ms, atLeast }: Lifetime): Promise<void> {
    const { client, closed } = this.services;
    const ttlSeconds = atLeast
      ? Math.ceil((ms + Math.max(ms * SHARED_PART, REQUESTS_MS)) / 1000)
      : Math.floor(ms / 1000);
    const grant = (member: Member, options: Parameters<Member["grant"]>[2]): Promise<unknown> =>
      member.grant(leaseId, ttlSeconds, options);
    try {
      await client.call(grant, { what: "grant a lease for marks", signal: closed, answers: ANSWERS });
    } catch (error) {
      // An attempt that stayed unanswered was executed.
      if (!(error instanceof LeaseExistsError)) throw error;
    }
  }
}
