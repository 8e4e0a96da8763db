/** `a/b/c` lies under `a/b` and under `a`. */
function* above(name: string): Generator<string> {
  for (let end = name.lastIndexOf("/"); end > 0; end = name.lastIndexOf("/", end - 1))
    yield name.slice(0, end);
}

/**
 * Names of queues. A queue's keys begin with its name and a slash, so the queue of `a` reads those of `a/b` too: names
 * conflict when they are equal, or one lies under the other.
 */
export class ConflictSet {
  readonly #names = new Set<string>();
  /** All that the names lie under. */
  readonly #above = new Set<string>();

  add(names: readonly string[]): void {
    for (const name of names) {
      this.#names.add(name);
      for (const upper of above(name)) this.#above.add(upper);
    }
  }

  /** Does any of `names` conflict with one that is here? In the depth of the names, however many are here. */
  conflict(names: readonly string[]): boolean {
    return names.some((name) => this.#conflicts(name));
  }

  #conflicts(name: string): boolean {
    if (this.#names.has(name) || this.#above.has(name)) return true;
    for (const upper of above(name)) if (this.#names.has(upper)) return true;
    return false;
  }
}
