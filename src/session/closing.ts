import { SessionClosedError } from "../errors.js";
import type { TaskTracker } from "../async/task-tracker.js";
import { deleteEntries, revokeLease, type CreatedKey } from "./cleanup.js";
import type { ClosableLease, EtcdServices } from "./connection.js";
import { settleWithin } from "../async/settle-within.js";

/** What a Closing needs of its lease. */
export interface ClosingLease extends ClosableLease {
  readonly services: EtcdServices;
  readonly ttlMs: number;
  readonly inFlight: TaskTracker;
  readonly entries: () => Iterable<CreatedKey>;
  remainingMs(): number;
  assertOpen(): void;
  endWaits(reason: SessionClosedError): void;
  renewNow(): Promise<void>;
  abandon(): void;
}

/** Ends a session at its user's request: by `close` or by `orphan`. */
export class Closing {
  #closing: Promise<void> | undefined;
  #orphaning = false;
  #endDrain: () => void = () => {};

  constructor(
    private readonly lease: ClosingLease,
    /** The leases that a close of the cluster waits for. */
    private readonly leases: Set<ClosableLease>,
  ) {}

  get begun(): boolean {
    return this.#closing !== undefined || this.#orphaning;
  }

  /** See `Session.close`. A further call can only shorten the drain. */
  close(drainMs: number): Promise<void> {
    if (this.lease.signal.aborted) return this.#closing ?? Promise.resolve();
    const timer = this.lease.services.clock.after(drainMs, () => this.#endDrain());
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
    try {
      await lease.renewNow();
    } catch (error) {
      // etcd has refused: the session continues.
      this.#orphaning = false;
      throw error;
    }
    // A close that began meanwhile revokes the lease.
    if (this.#closing) throw new SessionClosedError(lease.leaseId);
    lease.abandon();
    return lease.leaseId;
  }

  /** The last hold has ended, which ends a drain. */
  holdsEnded(): void {
    this.#endDrain();
  }

  /** Waits for joins and for the deletes that follow them: one TTL at most, although rejected deletes are still repeated. */
  async #settled(): Promise<void> {
    const { inFlight, services, ttlMs } = this.lease;
    const limit = { signal: undefined, timeoutMs: ttlMs };
    const onTimeout = (): Error => new Error("not settled within one TTL");
    await settleWithin(inFlight.settled(), limit, services, { onTimeout }).catch(() => undefined);
  }

  /** Refuses new calls and rejects waiting ones; the lease is still renewed while anything is held. */
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
    const { services, leaseId, entries } = lease;
    // Makes a close of the cluster wait for the revocation; otherwise it would close the connection under it.
    this.leases.add(lease);
    await Promise.all([
      revokeLease(services, leaseId, leaseEndsMs),
      // A revocation does not delete a key that a put without the lease has detached from it; and etcd refuses to revoke
      // a lease with a key that our user must not write, even if another client has put that key.
      deleteEntries(services, entries(), leaseEndsMs),
    ]);
    this.leases.delete(lease);
  }
}
