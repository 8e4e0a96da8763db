import type { Lease } from "./lease.js";
import type { Timer } from "../async/clock.js";

/** A session that does nothing lists its keys this often. */
const MAX_PAUSE_MS = 300_000;

export interface AuditListener {
  /** All keys of the lease; undefined when etcd refuses to list them. The list may be of an older state. */
  audited(keys: readonly Buffer[] | undefined): void;
}

const ofLease = new WeakMap<Lease, KeyAudit>();

/**
 * Lists all keys of one lease, in one request, for whoever compares them with what they should be. The pauses between two
 * lists double, so the keys of a request that arrives late are found after about as long again; a listener with a reason
 * to ask sooner shortens the pause. One timer and one request for the session, however many keys it has.
 */
export class KeyAudit {
  readonly #listeners: AuditListener[] = [];
  /** After the next list. */
  #pauseMs = MAX_PAUSE_MS;
  #timer: Timer | undefined;
  #dueAt = Infinity;
  #listing = false;

  private constructor(private readonly lease: Lease) {
    if (!lease.signal.aborted) lease.connection.aborts.add(lease.signal, () => this.#timer?.cancel());
  }

  static of(lease: Lease): KeyAudit {
    const audit = ofLease.get(lease) ?? new KeyAudit(lease);
    ofLease.set(lease, audit);
    return audit;
  }

  add(listener: AuditListener): void {
    this.#listeners.push(listener);
  }

  /** Lists the keys in about `delayMs` at the latest. */
  within(delayMs: number): void {
    if (this.lease.signal.aborted) return;
    // A list that is under way may be of the state before.
    if (this.#listing) this.#pauseMs = Math.min(this.#pauseMs, delayMs);
    else if (this.lease.connection.clock.monotonic() + delayMs < this.#dueAt) this.#arm(delayMs);
    else this.#pauseMs = Math.min(this.#pauseMs, 2 * delayMs);
  }

  #arm(delayMs: number): void {
    const { clock } = this.lease.connection;
    this.#timer?.cancel();
    this.#pauseMs = Math.min(2 * delayMs, MAX_PAUSE_MS);
    this.#dueAt = clock.monotonic() + delayMs;
    this.#timer = clock.after(delayMs * (0.75 + clock.random() / 2), () => void this.#list());
  }

  async #list(): Promise<void> {
    this.#listing = true;
    const keys = await this.#keys();
    if (this.lease.signal.aborted) return;
    for (const listener of this.#listeners) listener.audited(keys);
    this.#listing = false;
    this.#arm(this.#pauseMs);
  }

  /** Asked until a member answers. */
  async #keys(): Promise<readonly Buffer[] | undefined> {
    const { leaseId, connection } = this.lease;
    const policy = this.lease.policy("list the keys of the lease");
    try {
      const { keys } = await connection.client.call(
        (member, options) => member.timeToLive(leaseId, options),
        policy,
      );
      return keys;
    } catch {
      // The session is over, or etcd refuses: the lease has keys that this user may not read, or too many for one answer.
      return undefined;
    }
  }
}
