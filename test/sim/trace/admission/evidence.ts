import type { StreamEvent } from "../events.js";
import { Rejected } from "../rejected.js";
import { nameOf, type SharedPlace, type SharedQueue } from "./places.js";
import { covers, CreatedWatches, type Created } from "./watches.js";

interface ReadAnswer {
  readonly place: SharedPlace;
  readonly queue: SharedQueue;
  readonly revision: number;
}

/** What each client has been shown of the queues. */
export class Evidence {
  readonly #processOf = new Map<string, number>();
  readonly #watches = new Map<number, CreatedWatches>();
  /** By process and name: the last revision of an event that a watch has reported. */
  readonly #heard = new Map<string, number>();
  /** By lease and name: the last revision at which a delete of this session was answered, or that its writer has become a reader. */
  readonly #frees = new Map<string, number>();
  /** By call: the watches that existed when it was sent. */
  readonly #reads = new Map<number, readonly Created[]>();

  ownedBy(lease: string, process: number): void {
    this.#processOf.set(lease, process);
  }

  leasesOf(process: number): ReadonlySet<string> {
    return new Set([...this.#processOf].flatMap(([lease, owner]) => (owner === process ? [lease] : [])));
  }

  /** Returns whether the stream is over: its watches must be created and verified anew. */
  watch(event: StreamEvent): boolean {
    return this.#watchesOf(event.process).follow(event);
  }

  heard(process: number, name: string, revision: number): void {
    raise(this.#heard, `${process} ${name}`, revision);
  }

  answered(lease: string, name: string, revision: number): void {
    raise(this.#frees, `${lease} ${name}`, revision);
  }

  readSent(call: number, process: number): void {
    this.#reads.set(call, this.#watchesOf(process).created);
  }

  failed(call: number): void {
    this.#reads.delete(call);
  }

  /** A read that both watches preceded verifies them. */
  readAnswered(call: number, { place, queue, revision }: ReadAnswer): void {
    const watches = this.#reads.get(call) ?? [];
    this.#reads.delete(call);
    place.shown.read = Math.max(place.shown.read, revision);
    const blocker = queue.blockerOf(place, queue.livingAtRevision(revision), revision);
    const at = (key: string): boolean =>
      watches.some((watch) => covers(watch, key) && watch.createdAt <= revision);
    if (at(place.key) && (!blocker || at(blocker.key))) place.shown.verified = true;
  }

  /** @throws Rejected if etcd has not admitted the place, or its client cannot know it. */
  assertAdmitted(what: string, place: SharedPlace, queue: SharedQueue): void {
    const at = queue.admitted(what, place);
    place.shown.known ||= this.#shows(place, at, queue);
    if (!place.shown.known)
      throw new Rejected(`${what}: etcd admits it from revision ${at} on, which its client cannot know`, []);
  }

  /** Whether its client may know that the place is admitted, which it is from a revision on. */
  #shows(place: SharedPlace, admittedAt: number, queue: SharedQueue): boolean {
    const { lease, shown, key } = place;
    if (Math.max(shown.join, shown.read) >= admittedAt) return true;
    const name = nameOf(key);
    if ((this.#frees.get(`${lease} ${name}`) ?? 0) >= admittedAt) return true;
    if (this.#togetherWith(place, queue)) return true;
    const process = this.#processOf.get(lease);
    const heard = (this.#heard.get(`${process} ${name}`) ?? 0) >= admittedAt;
    return heard && (shown.verified || this.#watchedSince(place, Math.max(place.created, shown.read)));
  }

  /** Readers of one session that have the same place before them are granted together. */
  #togetherWith(place: SharedPlace, queue: SharedQueue): boolean {
    return queue.all.some((other) => {
      const { admittedAt, isReader, lease, created } = other;
      if (!place.isReader || !isReader || lease !== place.lease || created >= place.created) return false;
      return admittedAt === place.admittedAt && this.#shows(other, admittedAt!, queue);
    });
  }

  /** Watches that are not newer than the join, or than a read, have reported whatever happened after it. */
  #watchedSince({ lease, key }: SharedPlace, seen: number): boolean {
    const watches = this.#watchesOf(this.#processOf.get(lease) ?? -1).created;
    return watches.some((watch) => covers(watch, key) && watch.createdAt <= seen);
  }

  #watchesOf(process: number): CreatedWatches {
    const watches = this.#watches.get(process) ?? new CreatedWatches();
    this.#watches.set(process, watches);
    return watches;
  }
}

function raise(map: Map<string, number>, key: string, revision: number): void {
  map.set(key, Math.max(map.get(key) ?? 0, revision));
}
