/** What waits for a renewal that is sent after it began to wait: an answer that was under way does not count. */
export class RenewalWaits {
  /** In the order of `since`. */
  readonly #waits: { readonly since: number; readonly run: () => void }[] = [];

  /** Calls `run` once, when a renewal that was sent at `since` or later is answered. Monotonic milliseconds. */
  add(since: number, run: () => void): void {
    this.#waits.push({ since, run });
  }

  /** A renewal was answered that was sent at `sentAt`. What its callbacks add waits for the next one. */
  answered(sentAt: number): void {
    const later = this.#waits.findIndex(({ since }) => since > sentAt);
    for (const { run } of this.#waits.splice(0, later === -1 ? Infinity : later)) run();
  }
}
