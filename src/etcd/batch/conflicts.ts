/** Where the next shorter name that `name.slice(0, end)` lies under ends; 0 or less: there is none. `a/b/c` lies under `a/b` and `a`. */
const endAbove = (name: string, end: number): number => name.lastIndexOf("/", end - 1);

/**
 * A set of queue names. A queue's keys begin with its name and a slash, so the queue of `a` also reads those of `a/b`: two
 * names conflict if they are equal, or if one lies under the other.
 */
export class ConflictSet {
  /** Names that are not in the sets yet. Most requests have one transaction and need no sets. */
  #unindexed: (readonly string[])[] = [];
  #sets: NameSets | undefined;

  add(names: readonly string[]): void {
    this.#unindexed.push(names);
  }

  /**
   * Whether any of `names` conflicts with the set. Indexes the names that were added since the last call. Apart from that, the
   * cost depends on the depth of `names`, not on the size of the set.
   */
  conflict(names: readonly string[]): boolean {
    for (const added of this.#unindexed) this.#index(added);
    this.#unindexed = [];
    const sets = this.#sets;
    return sets !== undefined && names.some((name) => conflicts(sets, name));
  }

  #index(names: readonly string[]): void {
    const { own, above } = (this.#sets ??= { own: new Set(), above: new Set() });
    for (const name of names) {
      own.add(name);
      for (let end = endAbove(name, name.length); end > 0; end = endAbove(name, end))
        above.add(name.slice(0, end));
    }
  }
}

interface NameSets {
  readonly own: Set<string>;
  /** All names that those in `own` lie under. */
  readonly above: Set<string>;
}

function conflicts({ own, above }: NameSets, name: string): boolean {
  if (own.has(name) || above.has(name)) return true;
  for (let end = endAbove(name, name.length); end > 0; end = endAbove(name, end))
    if (own.has(name.slice(0, end))) return true;
  return false;
}
