import { hostname } from "node:os";
import { type EtcdRefusedError, EtcdUnavailableError, SessionLostError } from "../../errors.js";
import { type CallOptions, type LeaseAnswer, LeaseExistsError, type Member } from "../../etcd/port.js";
import type { CheckedSession, CheckedWait } from "../../base/options/check.js";
import { delayedLease, delayLeaseOf, isDelayed, plainLease } from "../../keys.js";
import { firstAbort } from "../../base/util/abort.js";
import type { Moment } from "../../base/util/clock.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { AdoptedEntries, hasDelayLease, readAdopted, revokeLease } from "./cleanup.js";
import type { ClusterState, EtcdServices } from "./connection.js";
import { type Delay, delayOf, delayTtlSeconds } from "./delay-lease.js";
import { type GrantedLease, Lease } from "./lease.js";

const OPEN_TIMEOUT_MS = 10_000;
const GRANT_ANSWERS = ["quota", "lease exists"] as const;

/** Of a session that was given none. */
export const defaultOwner = (): string => `${hostname()}:${process.pid}`;

/** Grants a lease and keeps it alive. After a failure or an abort, revokes in the background what etcd may have granted. */
export async function openLease(
  cluster: ClusterState,
  options: CheckedSession,
  given: CheckedWait,
): Promise<Lease> {
  return limited(cluster.services, given, (limits) => open(cluster, options, limits));
}

async function open(cluster: ClusterState, options: CheckedSession, limits: Limits): Promise<Lease> {
  const { services } = cluster;
  // The client chooses the ID, so that a grant whose answer was lost can be repeated without leaving a second lease.
  const id = services.clock.randomId();
  const wantsDelay = options.releaseDelayMs > 0;
  const leaseId = wantsDelay ? delayedLease(id) : plainLease(id);
  const wanted = { leaseId, ttlSeconds: options.ttlSeconds, mayExist: false };
  const granting = grantLease(services, wanted, limits);
  try {
    const lease = await within(services, granting, { ...limits, what: "grant a lease" });
    limits.signal.throwIfAborted();
    const delay = wantsDelay ? await openDelay(cluster, lease, { options, limits }) : undefined;
    const fresh = delay && isOld(services, lease) ? await renewBoth(services, lease, limits) : lease;
    limits.signal.throwIfAborted();
    return new Lease(cluster, { ...fresh, delay }, options.owner ?? defaultOwner());
  } catch (error) {
    inOwnContext(() => revokeInBackground(cluster, wanted, granting));
    throw error;
  }
}

/** Much of the TTL is over. */
const isOld = ({ clock }: EtcdServices, { sent, ttlSeconds }: GrantedLease): boolean =>
  clock.monotonic() - sent.monotonic > ttlSeconds * 250;

/** The second grant was answered late. @throws EtcdUnavailableError if it was too late for the first lease. */
async function renewBoth(
  services: EtcdServices,
  { leaseId }: GrantedLease,
  limits: Limits,
): Promise<GrantedLease> {
  try {
    await renewOnce(services, delayLeaseOf(leaseId), limits);
    return await renewOnce(services, leaseId, limits);
  } catch (error) {
    if (!(error instanceof SessionLostError)) throw error;
    throw new EtcdUnavailableError("grant a lease", services.client.hosts.whyUnanswered(limits.timeoutMs));
  }
}

/** With a TTL that counts from the one that etcd has granted, which may be longer than the one that was asked for. */
async function openDelay(
  cluster: ClusterState,
  { leaseId: ofLease, ttlSeconds: own }: GrantedLease,
  { options, limits }: { readonly options: CheckedSession; readonly limits: Limits },
): Promise<Delay> {
  const { releaseDelayMs: delayMs } = options;
  const leaseId = delayLeaseOf(ofLease);
  const wanted = { leaseId, ttlSeconds: delayTtlSeconds(own, delayMs), mayExist: false };
  const granting = grantLease(cluster.services, wanted, limits);
  try {
    const { ttlSeconds } = await within(cluster.services, granting, { ...limits, what: "grant a lease" });
    limits.signal.throwIfAborted();
    return { delayMs, ttlSeconds };
  } catch (error) {
    inOwnContext(() => revokeInBackground(cluster, wanted, granting));
    throw error;
  }
}

/** A lease that is asked for. */
interface WantedLease {
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  /** A grant was sent: etcd may have executed it. */
  mayExist: boolean;
}

/** How long opening a session may take: until the caller's abort or timeout, or until the cluster is closed. */
interface Limits {
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** The caller has chosen `timeoutMs`. */
  readonly limitIsGiven?: boolean;
}

async function limited<T>(
  { closed, aborts }: EtcdServices,
  { signal, timeoutMs }: CheckedWait,
  run: (limits: Limits) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  closed.throwIfAborted();
  const limits = { timeoutMs: timeoutMs ?? OPEN_TIMEOUT_MS, limitIsGiven: timeoutMs !== undefined };
  if (signal === undefined) return run({ signal: closed, ...limits });
  const either = firstAbort(aborts, [signal, closed]);
  try {
    return await run({ signal: either.signal, ...limits });
  } finally {
    either.stop();
  }
}

function within<T>(
  services: EtcdServices,
  promise: Promise<T>,
  wait: Limits & { readonly what: string },
): Promise<T> {
  const onTimeout = (): Error =>
    new EtcdUnavailableError(wait.what, services.client.hosts.whyUnanswered(wait.timeoutMs));
  return settleWithin(promise, wait, services, { onTimeout });
}

/** A grant, or a renewal after it, with most of the TTL left. */
async function grantLease(
  services: EtcdServices,
  wanted: WantedLease,
  { timeoutMs, ...limits }: Limits,
): Promise<GrantedLease> {
  const { clock } = services;
  const start = clock.monotonic();
  const left = (): Limits => ({ ...limits, timeoutMs: Math.max(1, timeoutMs - (clock.monotonic() - start)) });
  for (;;) {
    const lease = await grantLeaseOnce(services, wanted, left());
    if (lease && !isOld(services, { ...lease, ttlSeconds: wanted.ttlSeconds })) return lease;
    try {
      // Answered late, or granted by an earlier attempt at an unknown time: the deadline counts from a renewal.
      return await renewOnce(services, wanted.leaseId, left());
    } catch (error) {
      // The lease has expired already: grant it again.
      if (!(error instanceof SessionLostError)) throw error;
    }
  }
}

/** undefined: an earlier attempt was executed. */
async function grantLeaseOnce(
  { clock, keepalive, client, aborts }: EtcdServices,
  wanted: WantedLease,
  { signal, timeoutMs, limitIsGiven }: Limits,
): Promise<GrantedLease | undefined> {
  const { leaseId, ttlSeconds } = wanted;
  let sent = clock.now();
  // A grant that was sent is not cancelled: etcd may execute it after the revocation that follows the abort, or the end of the time.
  const unsent = new AbortController();
  const cancel = (reason: unknown): void => void (wanted.mayExist || unsent.abort(reason));
  const stop = aborts.add(signal, () => cancel(signal.reason));
  const late = (): Error => new EtcdUnavailableError("grant a lease", client.hosts.whyUnanswered(timeoutMs));
  const timer = clock.after(timeoutMs, () => cancel(late()));
  // The probe travels with the grant, in one round trip. No lease of a proxy is used: it is granted again by another member.
  const attempt = async (member: Member, options: CallOptions): Promise<LeaseAnswer> => {
    const probe = keepalive.assertDirect(member, { ...options, signal, timeoutMs: client.requestTimeoutMs });
    sent = clock.now();
    // Also if it is rejected: an intermediary may have replaced the answer to an executed grant.
    const onSent = (): void => {
      wanted.mayExist = true;
      options.onSent?.();
    };
    const granting = member.grant(leaseId, ttlSeconds, { ...options, onSent });
    // The failure of the probe says more than that of the grant. A grant that was answered can be revoked: both are awaited.
    const [probed] = await Promise.allSettled([probe, granting]);
    if (probed.status === "rejected") throw probed.reason;
    return granting;
  };
  try {
    // Attempts are not as short as those of a session's other calls: this one may have to connect and to get a token.
    const policy = {
      what: "grant a lease",
      ...{ giveUpMs: timeoutMs, limitIsGiven, outlastsLimit: true },
      signal: unsent.signal,
      again: () => !signal.aborted,
      answers: GRANT_ANSWERS,
    };
    const answer = await client.call(attempt, policy);
    return { leaseId, ttlSeconds: answer.ttlSeconds, sent };
  } catch (error) {
    if (!(error instanceof LeaseExistsError)) throw error;
    return undefined;
  } finally {
    timer.cancel();
    stop();
  }
}

/** One accepted renewal. @throws SessionLostError when etcd has no such lease. @throws EtcdRefusedError when it does not renew it. */
function renewOnce(services: EtcdServices, leaseId: bigint, limits: Limits): Promise<GrantedLease> {
  const { keepalive, clock, aborts, client } = services;
  return new Promise((resolve, reject) => {
    const listener = {
      leaseId,
      patienceMs: Math.min(1500, client.requestTimeoutMs),
      renewed: (sent: Moment, ttlSeconds: number) => end(() => resolve({ leaseId, ttlSeconds, sent })),
      refused: (error: EtcdRefusedError) => end(() => reject(error)),
      leaseNotFound: () =>
        end(() => reject(new SessionLostError(leaseId, "revoked", "etcd has no such lease"))),
    };
    const giveUp = (): void =>
      end(() =>
        reject(new EtcdUnavailableError("renew a lease", client.hosts.whyUnanswered(limits.timeoutMs))),
      );
    const timer = clock.after(limits.timeoutMs, giveUp);
    const stop = aborts.add(limits.signal, () => end(() => reject(limits.signal.reason as Error)));
    const end = (settle: () => void): void => {
      timer.cancel();
      stop();
      keepalive.detach(listener);
      settle();
    };
    keepalive.renew(listener);
  });
}

/** Takes over a lease that another session orphaned. Renews it first, so that the deadline counts from that send. */
export async function adoptLease(
  cluster: ClusterState,
  wanted: AdoptedLease,
  given: CheckedWait,
): Promise<Lease> {
  return limited(cluster.services, given, (limits) => adopt(cluster, wanted, limits));
}

interface AdoptedLease {
  readonly leaseId: bigint;
  readonly owner: string | undefined;
}

async function adopt(
  cluster: ClusterState,
  { leaseId, owner }: AdoptedLease,
  limits: Limits,
): Promise<Lease> {
  const { services } = cluster;
  await services.client.loaded();
  limits.signal.throwIfAborted();
  const delayTtl = await renewDelay(services, leaseId, limits);
  limits.signal.throwIfAborted();
  const renewed = await renewOnce(services, leaseId, limits);
  limits.signal.throwIfAborted();
  const delay = delayTtl === undefined ? undefined : delayOf(renewed.ttlSeconds, delayTtl);
  const lease = new Lease(cluster, { ...renewed, delay }, owner ?? defaultOwner());
  // In one write: until now, the delay lease could have ended a round trip too early.
  if (delay) lease.renew();
  try {
    const what = "read an adopted lease";
    const reading = readAdopted(services, leaseId, lease.policy(what));
    const entries = await within(services, reading, { ...limits, what });
    lease.adopted = new AdoptedEntries(lease, entries, lease.ttlMs);
    // A put of the session that orphaned it may still arrive.
    lease.sweeper.soon();
    return lease;
  } catch (error) {
    // Not revoked: a further call may still adopt it.
    lease.abandon();
    await lease.unguard();
    throw error;
  }
}

/** The TTL of the delay lease of `leaseId`; undefined if it has none. */
async function renewDelay(
  services: EtcdServices,
  leaseId: bigint,
  limits: Limits,
): Promise<number | undefined> {
  const { timeoutMs: giveUpMs, signal } = limits;
  const policy = { what: "read an adopted lease", giveUpMs, signal, limitIsGiven: limits.limitIsGiven };
  if (!isDelayed(leaseId) || !(await hasDelayLease(services, leaseId, policy))) return undefined;
  limits.signal.throwIfAborted();
  try {
    return (await renewOnce(services, delayLeaseOf(leaseId), limits)).ttlSeconds;
  } catch (error) {
    if (error instanceof SessionLostError) return undefined;
    throw error;
  }
}

/** Revokes in the background once the grant has settled; sooner, it would do nothing. `cluster.close()` waits for this. */
function revokeInBackground(cluster: ClusterState, wanted: WantedLease, granting: Promise<unknown>): void {
  const { services, revoking } = cluster;
  const withinMs = services.options.requestTimeoutMs * 4;
  const revoked = granting
    .catch(() => undefined)
    .then(() => (wanted.mayExist ? revokeLease(services, wanted.leaseId, withinMs) : undefined))
    .finally(() => revoking.delete(revoked));
  revoking.add(revoked);
}
