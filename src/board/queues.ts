import { keyText } from "../etcd/watch/watch.js";
import { prefixEnd, prefixOf } from "../keys.js";
import type { QueueSnapshot } from "../observe/queue-watch.js";
import { placedIn, type BoardKey, type PlacedEntry } from "./board-entry.js";
import { LiveQueue } from "./board-queue.js";
import { PastNames, type BoardEvent } from "./history.js";
import { LeaseKeys } from "./lease-keys.js";
import { directoriesOf } from "./names-above.js";
import { SortedList } from "./sorted-list.js";

/** A key that has changed. */
interface Change {
  /** The entry that is gone; another one may have the same key. */
  readonly gone: BoardKey | undefined;
  readonly put: BoardKey | undefined;
  /** `put` is the same entry with a new value. */
  readonly isUpdate: boolean;
}

/** One step of the board. */
interface Step {
  readonly revision: bigint;
  /** Monotonic milliseconds; undefined: the first picture, in which nothing happened. */
  readonly at: number | undefined;
  /** It is one revision of etcd. A read may collapse several. */
  readonly isOneRevision: boolean;
}

const byBytes = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);

/** The queues of all names. A change costs what it changes, however many other queues there are. */
export class Queues {
  readonly live = new Map<string, LiveQueue>();
  grants = 0;
  readonly #past = new PastNames();
  #keys = new Map<string, BoardKey>();
  /** In latin1. The keys of a name and of the names nested in it are neighbors in the order of bytes. */
  #sorted = new SortedList<string>(byBytes);
  readonly #leases = new LeaseKeys();

  /** `prefix`: of the cluster. */
  constructor(private readonly prefix: string) {}

  historyOf(name: string): readonly BoardEvent[] {
    return (this.live.get(name)?.history ?? this.#past.get(name))?.events ?? [];
  }

  /**
   * Takes over the keys of a revision, and returns the names whose queues have changed. `changed`: the only keys that may
   * have; undefined: any of them. `at`: see `Step`.
   */
  apply(
    { keys, revision }: QueueSnapshot<BoardKey>,
    changed: ReadonlySet<string> | undefined,
    at: number | undefined,
  ): ReadonlySet<string> {
    const changes = this.#take(keys, changed ?? new Set([...this.#keys.keys(), ...keys.keys()]));
    const touched = new Set<LiveQueue>();
    for (const { gone } of changes) if (gone) this.#remove(gone, touched);
    for (const change of changes) if (change.put) this.#put(change.put, change.isUpdate, touched);
    const step = { revision, at, isOneRevision: changed !== undefined };
    for (const queue of touched) this.#settle(queue, step);
    return new Set([...touched].map(({ name }) => name));
  }

  /** Brings the keys up to date, the queues not yet. */
  #take(keys: ReadonlyMap<string, BoardKey>, changed: ReadonlySet<string>): readonly Change[] {
    const changes: Change[] = [];
    this.#leases.begin();
    for (const key of changed) {
      const [before, put] = [this.#keys.get(key), keys.get(key)];
      if (before?.modRevision === put?.modRevision) continue;
      const isUpdate = before?.createRevision === put?.createRevision;
      changes.push({ gone: isUpdate ? undefined : before, put, isUpdate });
      if (before) this.#leases[isUpdate ? "drop" : "delete"](before.value.leaseId);
      if (put) this.#leases.put(put.value.leaseId);
      if (put) this.#keys.set(key, put);
      else this.#keys.delete(key);
    }
    this.#sort(changes);
    return changes;
  }

  #sort(changes: readonly Change[]): void {
    const moved = changes.filter(({ isUpdate }) => !isUpdate);
    if (moved.length > MANY) return void (this.#sorted = new SortedList(byBytes, this.#keys.keys()));
    for (const { gone } of moved) if (gone) this.#sorted.remove(keyText(gone.key));
    for (const { put } of moved) if (put) this.#sorted.set(keyText(put.key));
  }

  #remove(key: BoardKey, touched: Set<LiveQueue>): void {
    const own = key.name === undefined ? undefined : this.live.get(key.name);
    if (own) own.direct--;
    for (const queue of this.#queuesOf(key)) {
      queue.remove(placedIn(queue.name, key, this.prefix));
      touched.add(queue);
    }
  }

  #put(key: BoardKey, isUpdate: boolean, touched: Set<LiveQueue>): void {
    const own = key.name === undefined ? undefined : (this.live.get(key.name) ?? this.#begin(key.name));
    if (own && !isUpdate) own.direct++;
    for (const queue of this.#queuesOf(key)) {
      queue.set(placedIn(queue.name, key, this.prefix));
      touched.add(queue);
    }
  }

  #queuesOf({ key }: BoardKey): readonly LiveQueue[] {
    return directoriesOf(key).flatMap((name) => this.live.get(name) ?? []);
  }

  /** A new queue, with the keys of the names nested in it. */
  #begin(name: string): LiveQueue {
    const start = Buffer.from(prefixOf(name)).toString("latin1");
    const [from, end] = [this.#sorted.position(start), this.#sorted.position(prefixEnd(start))];
    const keys = this.#sorted.items.slice(from, end).flatMap((key) => this.#keys.get(key) ?? []);
    const entries = keys.map((key) => placedIn(name, key, this.prefix));
    const queue = new LiveQueue(name, this.#past.take(name), entries);
    this.live.set(name, queue);
    return queue;
  }

  #settle(queue: LiveQueue, step: Step): void {
    if (queue.direct === 0) {
      this.live.delete(queue.name);
      this.#past.keep(queue.name, queue.history);
      queue.clear();
    }
    const { began, ended } = queue.settle(step.revision);
    if (step.at === undefined) return;
    for (const entry of ended) queue.history.add(this.#end(entry, { ...step, at: step.at }));
    for (const entry of began) {
      entry.grantedAt = step.at;
      queue.history.add({
        kind: "granted",
        entry,
        at: step.at,
        revision: step.revision,
        together: undefined,
      });
    }
    this.grants += began.length;
  }

  #end(entry: PlacedEntry, { at, revision, isOneRevision }: Step & { readonly at: number }): BoardEvent {
    const kind = entry.leaseId !== 0n && this.#leases.living(entry.leaseId) > 0 ? "released" : "ended";
    const together = isOneRevision ? this.#leases.deleted(entry.leaseId) : undefined;
    return { kind, entry, at, revision, together };
  }
}

/** To sort all keys anew takes less time than to move so many of them one by one. */
const MANY = 500;
