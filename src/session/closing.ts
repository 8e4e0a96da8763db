import { SessionClosedError } from "../errors.js";
import type { Lease } from "./lease.js";
import { deletePlacesUntilConfirmed } from "./cleanup.js";
import { revokeLease } from "./revoke.js";
import { settleWithin } from "../async/settle-within.js";

/** How a session ends because its user wants it to: closed, or orphaned. */
export class Closing {
  #closing: Promise<void> | undefined;
  #orphaning = false;
  #endDrain: () => void = () => {};

  constructor(private readonly lease: Lease) {}

  get begun(): boolean {
    return this.#closing !== undefined || this.#orphaning;
  }

  /** See `Session.close`. A further call can only shorten the drain. */
  close(drainMs: number): Promise<void> {
    if (this.lease.signal.aborted) return this.#closing ?? Promise.resolve();
    const timer = this.lease.connection.clock.after(drainMs, () => this.#endDrain());
    this.#closing ??= this.#drain().then(() => this.#finish());
    if (drainMs === 0) this.#endDrain();
    return this.#closing.finally(() => timer.cancel());
  }

  /** See `Session.orphan`. */
  async orphan(): Promise<bigint> {
    const { lease } = this;
    lease.assertOpen();
    this.#orphaning = true;
    lease.endWaits(new SessionClosedError(lease.leaseId));
    await this.#settled();
    await lease.renewNow();
    // A close that came meanwhile revokes the lease.
    if (this.#closing) throw new SessionClosedError(lease.leaseId);
    lease.abandon();
    return lease.leaseId;
  }

  /** The last hold has ended, and with it a drain. */
  holdsEnded(): void {
    this.#endDrain();
  }

  /** A join that ends now is followed by its delete. Deletes that etcd refuses are repeated, but waited for one TTL only. */
  async #settled(): Promise<void> {
    const { inFlight, connection, ttlMs } = this.lease;
    const limit = { signal: undefined, timeoutMs: ttlMs };
    const onTimeout = (): Error => new Error("not settled within one TTL");
    await settleWithin(inFlight.settled(), limit, connection, { onTimeout }).catch(() => undefined);
  }

  /** Refuses what is new, rejects what waits, and goes on renewing while anything is held. */
  #drain(): Promise<void> {
    const { lease } = this;
    const drained = new Promise<void>((resolve) => {
      this.#endDrain = resolve;
      lease.signal.addEventListener("abort", () => resolve(), { once: true });
      if (lease.holds.size === 0) resolve();
    });
    lease.endWaits(new SessionClosedError(lease.leaseId));
    return drained;
  }

  async #finish(): Promise<void> {
    const { lease } = this;
    if (lease.signal.aborted) return;
    const leaseEndsMs = lease.remainingMs() + lease.ttlMs * 0.1;
    lease.abandon();
    const { connection, leaseId, places } = lease;
    // Still to be waited for: a close of the cluster that comes now would hang up on the revocation.
    connection.leases.add(lease);
    await Promise.all([
      revokeLease(connection, leaseId, leaseEndsMs),
      // A put without the lease takes a key away from it; and etcd refuses to revoke a lease with a key that we must not
      // write, whoever has put it there.
      deletePlacesUntilConfirmed(connection, places(), leaseEndsMs),
    ]);
    connection.leases.delete(lease);
  }
}
