/** `a/b/c` lies under `a/b` and under `a`. */
function* above(name: string): Generator<string> {
  for (let end = name.lastIndexOf("/"); end > 0; end = name.lastIndexOf("/", end - 1))
    yield name.slice(0, end);
}

/**
 * A set of queue names. A queue's keys begin with its name and a slash, so the queue of `a` also reads those of `a/b`: two
 * names conflict if they are equal, or if one lies under the other.
 */
export class ConflictSet {
  readonly #names = new Set<string>();
  /** All names that those in the set lie under. */
  readonly #above = new Set<string>();

  add(names: readonly string[]): void {
    for (const name of names) {
      this.#names.add(name);
      for (const upper of above(name)) this.#above.add(upper);
    }
  }

  /** Whether any of `names` conflicts with the set. The cost depends on their depth, not on the size of the set. */
  conflict(names: readonly string[]): boolean {
    return names.some((name) => this.#conflicts(name));
  }

  #conflicts(name: string): boolean {
    if (this.#names.has(name) || this.#above.has(name)) return true;
    for (const upper of above(name)) if (this.#names.has(upper)) return true;
    return false;
  }
}
