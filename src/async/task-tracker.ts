/** Tracks work in progress, for callers that must not end before it. */
export class TaskTracker {
  readonly #works = new Set<Promise<unknown>>();

  track<T>(work: Promise<T>): Promise<T> {
    const end = (): boolean => this.#works.delete(settled);
    const settled: Promise<unknown> = work.then(end, end);
    this.#works.add(settled);
    return work;
  }

  /** Resolves when all tracked work has settled, including work that was added meanwhile. */
  async settled(): Promise<void> {
    while (this.#works.size > 0) await Promise.all(this.#works);
  }
}
