import { Rejected } from "../rejected.js";

/** One key of a queue with readers, writers, mutexes and permits. */
export interface SharedPlace {
  readonly key: string;
  readonly value: string;
  readonly lease: string;
  readonly created: number;
  readonly isReader: boolean;
  /** The revision at which a writer has become a reader; Infinity: at none. */
  readerSince: number;
  /** Undefined unless it is one of several permits. */
  readonly permits: number | undefined;
  /** 0 while it exists. */
  deleted: number;
  /** The first revision at which it is admitted. */
  admittedAt: number | undefined;
  /** What its client has been shown. */
  readonly shown: Shown;
}

/** Revisions of the answers by which a client may know that a place is admitted. 0: there is none. */
export interface Shown {
  /** Its join, with the queue in the same answer. */
  join: number;
  /** A read of its queue. */
  read: number;
  /** It has read its queue while watches on its own key and on what blocks it existed. */
  verified: boolean;
  /** Its client knows that it is admitted. */
  known: boolean;
  granted: boolean;
  left: boolean;
}

/** A reader's key is in `name/read`, a writer's in `name/write`, all others in `name`. */
export function folderOf(key: string): { readonly name: string; readonly folder: "" | "/read" | "/write" } {
  const directory = key.slice(0, key.lastIndexOf("/"));
  const folder = directory.endsWith("/read") ? "/read" : directory.endsWith("/write") ? "/write" : "";
  return { name: directory.slice(0, directory.length - folder.length), folder };
}

export const nameOf = (key: string): string => folderOf(key).name;

export const leaseOf = (key: string): string => key.slice(key.lastIndexOf("/") + 1).split("-")[0]!;

const permitsIn = (value: string): number | undefined =>
  (JSON.parse(value) as { readonly permits?: number }).permits;

/** The queue of one name, as etcd has it. */
export class SharedQueue {
  readonly #living = new Map<string, SharedPlace>();
  readonly #all = new Map<string, SharedPlace>();

  get living(): readonly SharedPlace[] {
    return [...this.#living.values()];
  }

  /** Also those that are gone. */
  get all(): readonly SharedPlace[] {
    return [...this.#all.values()];
  }

  /** The places that exist at a revision. */
  livingAtRevision(revision: number): SharedPlace[] {
    return this.all.filter(
      ({ created, deleted }) => created <= revision && (deleted === 0 || deleted > revision),
    );
  }

  at(key: string, created: number): SharedPlace | undefined {
    return this.#all.get(`${key} ${created}`);
  }

  livingAt(key: string): SharedPlace | undefined {
    return this.#living.get(key);
  }

  put(key: string, value: string, created: number): void {
    const shown = {
      join: 0,
      read: 0,
      verified: false,
      known: false,
      announced: false,
      granted: false,
      left: false,
    };
    const isReader = folderOf(key).folder === "/read";
    const of = {
      isReader,
      readerSince: Infinity,
      permits: permitsIn(value),
      deleted: 0,
      admittedAt: undefined,
      shown,
    };
    const place = { key, value, lease: leaseOf(key), created, ...of };
    this.#living.set(key, place);
    this.#all.set(`${key} ${created}`, place);
  }

  /** The key is there, and is put again. */
  putAgain({ key }: SharedPlace, value: string, revision: number): void {
    const place = this.#living.get(key);
    const { downgraded = false } = JSON.parse(value) as { readonly downgraded?: boolean };
    if (place && downgraded) place.readerSince = Math.min(place.readerSince, revision);
  }

  delete(key: string, revision: number): void {
    const place = this.#living.get(key);
    if (place) place.deleted = revision;
    this.#living.delete(key);
  }

  /** Places that this revision has admitted remain so: no key comes before another one later. */
  admit(revision: number): void {
    for (const place of this.#living.values())
      if (place.admittedAt === undefined && this.blockerOf(place) === undefined) place.admittedAt = revision;
  }

  /** The nearest place that must end first; undefined: none. Of several holders of permits, the last one that came. */
  blockerOf(
    place: SharedPlace,
    places: Iterable<SharedPlace> = this.#living.values(),
    revision = Number.MAX_SAFE_INTEGER,
  ): SharedPlace | undefined {
    const before = [...places]
      .filter(({ created }) => created < place.created)
      .sort((a, b) => a.created - b.created);
    if (place.isReader) return before.findLast((other) => !other.isReader && other.readerSince > revision);
    // The number in the oldest place counts. A mutex or a writer admits one.
    const permits = place.permits === undefined ? 1 : ((before[0] ?? place).permits ?? 1);
    return before.length < permits ? undefined : before.at(-1);
  }

  /** @throws Rejected if no state of etcd has admitted the place. */
  admitted(what: string, place: SharedPlace): number {
    if (place.admittedAt !== undefined) return place.admittedAt;
    const blocker = this.blockerOf(place);
    const why = blocker ? `${blocker.key}, created at ${blocker.created}, is before it` : "its key is gone";
    throw new Rejected(`${what}: etcd has admitted it at no time: ${why}`, []);
  }
}
