/** Where the next shorter name that `name.slice(0, end)` lies under ends; 0 or less: there is none. `a/b/c` lies under `a/b` and `a`. */
const endAbove = (name: string, end: number): number => name.lastIndexOf("/", end - 1);

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
      for (let end = endAbove(name, name.length); end > 0; end = endAbove(name, end))
        this.#above.add(name.slice(0, end));
    }
  }

  /** Whether any of `names` conflicts with the set. The cost depends on their depth, not on the size of the set. */
  conflict(names: readonly string[]): boolean {
    return this.#names.size > 0 && names.some((name) => this.#conflicts(name));
  }

  #conflicts(name: string): boolean {
    if (this.#names.has(name) || this.#above.has(name)) return true;
    for (let end = endAbove(name, name.length); end > 0; end = endAbove(name, end))
      if (this.#names.has(name.slice(0, end))) return true;
    return false;
  }
}
