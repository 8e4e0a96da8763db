/** How many keys each lease has on the board, and how many of them the last change has deleted. */
export class LeaseKeys {
  readonly #living = new Map<bigint, number>();
  readonly #deleted = new Map<bigint, number>();

  /** A new change begins. */
  begin(): void {
    this.#deleted.clear();
  }

  put(leaseId: bigint): void {
    this.#living.set(leaseId, this.living(leaseId) + 1);
  }

  drop(leaseId: bigint): void {
    const living = this.living(leaseId) - 1;
    if (living === 0) this.#living.delete(leaseId);
    else this.#living.set(leaseId, living);
  }

  delete(leaseId: bigint): void {
    this.drop(leaseId);
    this.#deleted.set(leaseId, this.deleted(leaseId) + 1);
  }

  living(leaseId: bigint): number {
    return this.#living.get(leaseId) ?? 0;
  }

  deleted(leaseId: bigint): number {
    return this.#deleted.get(leaseId) ?? 0;
  }
}
