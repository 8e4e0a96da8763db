/** Names that are gone, for readers that may still show them. One that is further behind begins anew. */
const MAX_GONE = 10_000;
/** Void entries are dropped when they are so many more than the others. */
const LEAST_VOID = 1000;

/** The change of a row. It is void when the row has changed again. */
interface Change {
  readonly name: string;
  readonly version: number;
}

/**
 * Which rows have changed, in the order of their latest changes. All readers share it: each one has only the version of
 * the last change that it has got, however many rows it still lacks.
 */
export class ChangeLog {
  /** Of the last change. */
  version = 0;
  /** A reader that has not got all changes up to this one may show rows that are gone. */
  forgotten = 0;
  /** In ascending order. */
  #changes: Change[] = [];
  readonly #latest = new Map<string, number>();
  /** The first one was gone first. */
  readonly #gone = new Set<string>();

  add(name: string, isGone: boolean): void {
    this.#latest.set(name, ++this.version);
    this.#changes.push({ name, version: this.version });
    this.#gone.delete(name);
    if (isGone) this.#gone.add(name);
    this.#forget();
    if (this.#changes.length > 2 * this.#latest.size + LEAST_VOID)
      this.#changes = this.#changes.filter((change) => this.#isLatest(change));
  }

  /** The latest changes of all rows from after `version` up to `last`. */
  *between(version: number, last: number): Iterable<Change> {
    for (let n = this.#after(version); n < this.#changes.length; n++) {
      const change = this.#changes[n];
      if (change === undefined || change.version > last) return;
      if (this.#isLatest(change)) yield change;
    }
  }

  #isLatest({ name, version }: Change): boolean {
    return this.#latest.get(name) === version;
  }

  #forget(): void {
    const [oldest] = this.#gone;
    if (this.#gone.size <= MAX_GONE || oldest === undefined) return;
    this.forgotten = Math.max(this.forgotten, this.#latest.get(oldest) ?? 0);
    this.#latest.delete(oldest);
    this.#gone.delete(oldest);
  }

  /** The position of the first change after `version`. */
  #after(version: number): number {
    let [from, to] = [0, this.#changes.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#changes[middle]?.version ?? Infinity) > version) to = middle;
      else from = middle + 1;
    }
    return from;
  }
}
