import { AdoptedPlaces, readAdopted } from "./adopt.js";
import { hostname } from "node:os";
import type { Connection } from "./connection.js";
import { EtcdUnavailableError, SessionClosedError, SessionLostError } from "./errors.js";
import { LeaseExistsError, type CallOptions, type LeaseAnswer, type Member } from "./etcd/rpc.js";
import { Lease } from "./lease.js";
import type { CheckedSession, CheckedWait } from "./options.js";
import type { Moment } from "./time.js";

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
  wait: CheckedWait,
): Promise<Lease> {
  assertOpen(connection);
  wait.signal?.throwIfAborted();
  // Chosen here, so that a grant whose answer was lost can be repeated without leaving a second lease behind.
  const leaseId = connection.clock.randomId();
  try {
    const accepted = await grant(connection, leaseId, options.ttlSeconds, wait);
    assertOpen(connection);
    return new Lease(
      connection,
      leaseId,
      accepted.ttlSeconds,
      options.owner ?? defaultOwner(),
      accepted.sent,
    );
  } catch (error) {
    revokeBehind(connection, leaseId);
    throw error;
  }
}

async function grant(
  connection: Connection,
  leaseId: bigint,
  ttlSeconds: number,
  { signal, timeoutMs = OPEN_TIMEOUT_MS }: CheckedWait,
): Promise<Accepted> {
  const { clock, members } = connection;
  let sent = clock.now();
  const ask = (member: Member, options: CallOptions): Promise<LeaseAnswer> => {
    sent = clock.now();
    return member.grant(leaseId, ttlSeconds, options);
  };
  try {
    const answer = await members.call(ask, { what: "grant a lease", giveUpMs: timeoutMs, signal });
    return { sent, ttlSeconds: answer.ttlSeconds };
  } catch (error) {
    if (!(error instanceof LeaseExistsError)) throw error;
    // Granted by an earlier attempt, at a time unknown: the deadline counts from a renewal.
    return renewOnce(connection, leaseId, { signal, timeoutMs: Math.max(1, timeoutMs) });
  }
}

/** The time and TTL of one accepted renewal. @throws SessionLostError when there is no such lease. */
export function renewOnce(connection: Connection, leaseId: bigint, wait: CheckedWait): Promise<Accepted> {
  const { keepalive, clock, aborts, members } = connection;
  return new Promise((resolve, reject) => {
    const renewer = {
      leaseId,
      patienceMs: Math.min(1500, members.requestTimeoutMs),
      renewed: (sent: Moment, ttlSeconds: number) => end(() => resolve({ sent, ttlSeconds })),
      gone: () => end(() => reject(new SessionLostError(leaseId, "revoked", "etcd has no such lease"))),
    };
    const giveUp = (): void => end(() => reject(new EtcdUnavailableError("renew a lease", new Map())));
    const timer = clock.after(wait.timeoutMs ?? OPEN_TIMEOUT_MS, giveUp);
    const stop = aborts.add(wait.signal, () => end(() => reject(wait.signal?.reason as Error)));
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
  wait: CheckedWait,
): Promise<Lease> {
  assertOpen(connection);
  wait.signal?.throwIfAborted();
  const { sent, ttlSeconds } = await renewOnce(connection, leaseId, wait);
  const lease = new Lease(connection, leaseId, ttlSeconds, owner ?? defaultOwner(), sent);
  try {
    const places = await readAdopted(connection, leaseId, lease.policy("read an adopted lease"));
    lease.adopted = new AdoptedPlaces(lease, places);
    return lease;
  } catch (error) {
    // Not revoked: whoever calls again may still adopt it.
    lease.abandon();
    throw error;
  }
}

function assertOpen(connection: Connection): void {
  if (connection.closed) throw new SessionClosedError(0n);
}

/** In the background; `cluster.close()` waits for it. */
function revokeBehind(connection: Connection, leaseId: bigint): void {
  const revoked = revoke(connection, leaseId).finally(() => connection.revoking.delete(revoked));
  connection.revoking.add(revoked);
}

async function revoke({ members, options }: Connection, leaseId: bigint): Promise<void> {
  const ask = (member: Member, call: CallOptions): Promise<void> => member.revoke(leaseId, call);
  const giveUpMs = options.requestTimeoutMs * 3;
  await members.call(ask, { what: "revoke a lease", giveUpMs }).catch(() => undefined);
}
