import { AdoptedEntries, readAdopted } from "./adopted-entries.js";
import { hostname } from "node:os";
import type { Connection } from "./connection.js";
import { EtcdUnavailableError, SessionLostError } from "../errors.js";
import { LeaseExistsError, type CallOptions, type LeaseAnswer, type Member } from "../etcd/port.js";
import { Lease } from "./lease.js";
import type { CheckedSession, CheckedWait } from "../options/check.js";
import { revokeLease } from "./revoke.js";
import { LatePutSweeper } from "./late-put-sweeper.js";
import type { Moment } from "../async/clock.js";
import { settleWithin } from "../async/settle-within.js";

const OPEN_TIMEOUT_MS = 10_000;

interface Accepted {
  readonly sent: Moment;
  readonly ttlSeconds: number;
}

export const defaultOwner = (): string => `${hostname()}:${process.pid}`;

/** Grants a lease and keeps it alive. What a failed or aborted attempt may have granted is revoked in the background. */
export async function openLease(
  connection: Connection,
  options: CheckedSession,
  given: CheckedWait,
): Promise<Lease> {
  const wait = limits(connection, given);
  // Chosen here, so that a grant whose answer was lost can be repeated without leaving a second lease behind.
  const leaseId = connection.clock.randomId();
  const granting = grant(connection, leaseId, options.ttlSeconds, wait);
  try {
    const { sent, ttlSeconds } = await within(connection, wait, "grant a lease", granting);
    wait.signal.throwIfAborted();
    return new Lease(connection, leaseId, ttlSeconds, options.owner ?? defaultOwner(), sent);
  } catch (error) {
    revokeBehind(connection, leaseId, granting);
    throw error;
  }
}

/** How long opening a session may take: to the caller's abort, his time limit, or the end of the cluster. */
interface Limits {
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
}

function limits({ closing }: Connection, { signal, timeoutMs = OPEN_TIMEOUT_MS }: CheckedWait): Limits {
  const either = signal ? AbortSignal.any([signal, closing.signal]) : closing.signal;
  either.throwIfAborted();
  return { signal: either, timeoutMs };
}

function within<T>(connection: Connection, wait: Limits, what: string, promise: Promise<T>): Promise<T> {
  const onTimeout = (): Error => new EtcdUnavailableError(what, connection.client.lastFailures);
  return settleWithin(promise, wait, connection, { onTimeout });
}

/** A granted lease with most of its TTL before it. */
async function grant(
  connection: Connection,
  leaseId: bigint,
  ttlSeconds: number,
  { signal, timeoutMs }: Limits,
): Promise<Accepted> {
  const { clock } = connection;
  const start = clock.monotonic();
  const left = (): Limits => ({ signal, timeoutMs: Math.max(1, timeoutMs - (clock.monotonic() - start)) });
  for (;;) {
    const granted = await grantOnce(connection, leaseId, ttlSeconds, left());
    if (granted && clock.monotonic() - granted.sent.monotonic <= ttlSeconds * 250) return granted;
    try {
      // Granted late, or by an earlier attempt at a time unknown: the deadline counts from a renewal.
      return await renewOnce(connection, leaseId, left());
    } catch (error) {
      // So late that it has expired: it is granted anew.
      if (!(error instanceof SessionLostError)) throw error;
    }
  }
}

/** undefined: an earlier attempt got through. */
async function grantOnce(
  { clock, keepalive, client }: Connection,
  leaseId: bigint,
  ttlSeconds: number,
  { signal, timeoutMs }: Limits,
): Promise<Accepted | undefined> {
  let sent = clock.now();
  const ask = async (member: Member, options: CallOptions): Promise<LeaseAnswer> => {
    await keepalive.assertDirect(member, { ...options, timeoutMs: client.requestTimeoutMs });
    sent = clock.now();
    return member.grant(leaseId, ttlSeconds, options);
  };
  try {
    // Not as short as the other calls of a session: this one may have to connect, and to get a token.
    const answer = await client.call(ask, { what: "grant a lease", giveUpMs: timeoutMs, signal });
    return { sent, ttlSeconds: answer.ttlSeconds };
  } catch (error) {
    if (!(error instanceof LeaseExistsError)) throw error;
    return undefined;
  }
}

/** The time and TTL of one accepted renewal. @throws SessionLostError when there is no such lease. */
export function renewOnce(connection: Connection, leaseId: bigint, wait: Limits): Promise<Accepted> {
  const { keepalive, clock, aborts, client } = connection;
  return new Promise((resolve, reject) => {
    const renewer = {
      leaseId,
      patienceMs: Math.min(1500, client.requestTimeoutMs),
      renewed: (sent: Moment, ttlSeconds: number) => end(() => resolve({ sent, ttlSeconds })),
      leaseNotFound: () =>
        end(() => reject(new SessionLostError(leaseId, "revoked", "etcd has no such lease"))),
    };
    const giveUp = (): void =>
      end(() => reject(new EtcdUnavailableError("renew a lease", client.lastFailures)));
    const timer = clock.after(wait.timeoutMs, giveUp);
    const stop = aborts.add(wait.signal, () => end(() => reject(wait.signal.reason as Error)));
    const end = (settle: () => void): void => {
      timer.cancel();
      stop();
      keepalive.detach(renewer);
      settle();
    };
    keepalive.renew(renewer);
  });
}

/** Goes on with a lease that another session orphaned: renews it first, so that the deadline starts with that send. */
export async function adoptLease(
  connection: Connection,
  leaseId: bigint,
  owner: string | undefined,
  given: CheckedWait,
): Promise<Lease> {
  const wait = limits(connection, given);
  const { sent, ttlSeconds } = await renewOnce(connection, leaseId, wait);
  wait.signal.throwIfAborted();
  const lease = new Lease(connection, leaseId, ttlSeconds, owner ?? defaultOwner(), sent);
  try {
    const what = "read an adopted lease";
    const places = await within(connection, wait, what, readAdopted(connection, leaseId, lease.policy(what)));
    lease.adopted = new AdoptedEntries(lease, places);
    // A put of the session that orphaned it may arrive yet.
    LatePutSweeper.of(lease).soon();
    return lease;
  } catch (error) {
    // Not revoked: whoever calls again may still adopt it.
    lease.abandon();
    throw error;
  }
}

/** In the background, when the grant has ended: in front of it, it would do nothing. `cluster.close()` waits for it. */
function revokeBehind(connection: Connection, leaseId: bigint, granting: Promise<unknown>): void {
  const revoked = granting
    .catch(() => undefined)
    .then(() => revokeLease(connection, leaseId, connection.options.requestTimeoutMs * 4))
    .finally(() => connection.revoking.delete(revoked));
  connection.revoking.add(revoked);
}
