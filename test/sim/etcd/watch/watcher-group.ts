import { contains } from "../bytes.js";
import type { Watcher } from "./watcher.js";

const NONE: readonly Watcher[] = [];

/** Watches by what they watch (storage/mvcc/watcher_group.go). */
export class WatcherGroup {
  readonly #all = new Set<Watcher>();
  /** The watches of one key, by its name. */
  readonly #ofKeys = new Map<string, Set<Watcher>>();
  readonly #ofRanges = new Set<Watcher>();

  get size(): number {
    return this.#all.size;
  }

  /** In the order in which they were added. */
  get all(): readonly Watcher[] {
    return [...this.#all];
  }

  has(watcher: Watcher): boolean {
    return this.#all.has(watcher);
  }

  add(watcher: Watcher): void {
    this.#all.add(watcher);
    const { key, end } = watcher.interval;
    if (end !== undefined) this.#ofRanges.add(watcher);
    else {
      const others = this.#ofKeys.get(key);
      if (others) others.add(watcher);
      else this.#ofKeys.set(key, new Set([watcher]));
    }
  }

  /** Returns false if the group does not have the watch. */
  delete(watcher: Watcher): boolean {
    if (!this.#all.delete(watcher)) return false;
    this.#ofRanges.delete(watcher);
    const { key } = watcher.interval;
    const others = this.#ofKeys.get(key);
    if (others?.delete(watcher) && others.size === 0) this.#ofKeys.delete(key);
    return true;
  }

  /** The watches of a key. */
  of(name: string): readonly Watcher[] {
    const ofKey = this.#ofKeys.get(name);
    if (ofKey === undefined && this.#ofRanges.size === 0) return NONE;
    const found = ofKey === undefined ? [] : [...ofKey];
    for (const watcher of this.#ofRanges) if (contains(watcher.interval, name)) found.push(watcher);
    return found;
  }
}
