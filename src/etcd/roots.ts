/** `a/b/c` lies under `a/b` and under `a`. */
function* above(name: string): Generator<string> {
  for (let end = name.lastIndexOf("/"); end > 0; end = name.lastIndexOf("/", end - 1))
    yield name.slice(0, end);
}

/**
 * Names of queues, each as often as it was added. A queue's keys begin with its name and a slash, so the queue of `a`
 * reads those of `a/b` too: names conflict when they are equal, or one lies under the other.
 */
export class Roots {
  readonly #names = new Map<string, number>();
  /** How many of the names lie under each. */
  readonly #under = new Map<string, number>();

  add(names: readonly string[]): void {
    for (const name of names) this.#count(name, 1);
  }

  remove(names: readonly string[]): void {
    for (const name of names) this.#count(name, -1);
  }

  /** Does any of `names` conflict with one that is here? In the depth of the names, however many are here. */
  conflict(names: readonly string[]): boolean {
    return names.some((name) => this.#conflicts(name));
  }

  #conflicts(name: string): boolean {
    if (this.#names.has(name) || this.#under.has(name)) return true;
    for (const upper of above(name)) if (this.#names.has(upper)) return true;
    return false;
  }

  #count(name: string, by: 1 | -1): void {
    add(this.#names, name, by);
    for (const upper of above(name)) add(this.#under, upper, by);
  }
}

function add(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}
