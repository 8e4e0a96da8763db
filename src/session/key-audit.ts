import type { Lease } from "./lease.js";
import type { Timer } from "../async/clock.js";

/** An idle session lists its keys this often. */
const MAX_PAUSE_MS = 300_000;

export interface AuditListener {
  /** `keys`: all keys of the lease; undefined when etcd refuses to list them. The list may show an older state. */
  audited(keys: readonly Buffer[] | undefined): void;
}

/**
 * Lists all keys of one lease in one request, for listeners that compare them with the keys it should have. The pause
 * doubles after each list, so the keys of a late request are found after about as long again as the request took. A
 * listener with a reason to list sooner shortens the pause. One timer and one request serve all keys of a session.
 */
export class KeyAudit {
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
    const { clock } = this.lease.services;
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

  /** Retries until a member answers. */
  async #keys(): Promise<readonly Buffer[] | undefined> {
    const { leaseId, services } = this.lease;
    const policy = this.lease.policy("list the keys of the lease");
    try {
      const { keys } = await services.client.call(
        (member, options) => member.timeToLive(leaseId, options),
        policy,
      );
      return keys;
    } catch {
      // The session is over, or etcd refuses: this user may not read all keys of the lease, or they exceed one answer.
      return undefined;
    }
  }
}
