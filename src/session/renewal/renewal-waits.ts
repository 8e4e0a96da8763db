import type { EtcdRefusedError } from "../../errors.js";

interface Wait {
  readonly since: number;
  readonly run: () => void;
  readonly refused?: (error: EtcdRefusedError) => void;
}

/** What waits for a renewal that is sent after it began to wait: an answer that was under way does not count. */
export class RenewalWaits {
  /** In the order of `since`. */
  #waits: Wait[] = [];

  /** Calls `run` once, when a renewal that was sent at `since` or later is answered. Monotonic milliseconds. */
  add(wait: Wait): void {
    this.#waits.push(wait);
  }

  /** etcd did not renew the lease: no renewal under way is answered any more. Waits without a `refused` continue. */
  refused(error: EtcdRefusedError): void {
    const ended = this.#waits.filter(({ refused }) => refused);
    this.#waits = this.#waits.filter(({ refused }) => !refused);
    for (const { refused } of ended) refused?.(error);
  }

  /** A renewal was answered that was sent at `sentAt`. What its callbacks add waits for the next one. */
  answered(sentAt: number): void {
    const later = this.#waits.findIndex(({ since }) => since > sentAt);
    for (const wait of this.#waits.splice(0, later === -1 ? Infinity : later)) wait.run();
  }
}
