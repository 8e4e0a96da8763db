import type { EventOf, StreamEvent } from "./events.js";

interface Watched {
  readonly key: string;
  /** undefined until etcd has created it. */
  createdAt: number | undefined;
  /** Revision of the last deletion that was delivered. */
  deleted: number;
}

/** `sure`: it is true of each watch that a caller may have; otherwise of one of them. */
export interface Known {
  readonly revision: number;
  readonly sure: boolean;
}

const NO_KEYS: ReadonlySet<string> = new Set();

/** The watches of all processes. */
export class RunWatches {
  readonly #of = new Map<number, ProcessWatches>();

  of(process: number): ProcessWatches {
    const watches = this.#of.get(process) ?? new ProcessWatches();
    this.#of.set(process, watches);
    return watches;
  }

  /** Something happens in the run. `coming`: by process, the keys that it asks watches for because of this. */
  turn(coming: ReadonlyMap<number, ReadonlySet<string>>): void {
    for (const process of coming.keys()) this.of(process);
    for (const [process, watches] of this.#of) watches.turn(coming.get(process) ?? NO_KEYS);
  }
}

/** The watches of one process, as its connections show them. Which caller has which watch is known by key and revision. */
export class ProcessWatches {
  /** The keys that the client asks watches for before anything else happens to it. */
  #coming: ReadonlySet<string> = new Set();
  /** The watch that etcd has just created. */
  #created: (Known & { readonly key: string }) | undefined;
  readonly #streams = new Map<number, Map<number, Watched>>();
  readonly #byKey = new Map<string, Set<Watched>>();

  /** Something happens to the client. */
  turn(coming: ReadonlySet<string>): void {
    this.#coming = coming;
    this.#created = undefined;
  }

  /** Returns the keys that it is about; `over`: their watches are gone. */
  follow(event: StreamEvent): { readonly keys: readonly string[]; readonly over: boolean } {
    const stream = this.#streams.get(event.stream) ?? new Map<number, Watched>();
    this.#streams.set(event.stream, stream);
    switch (event.is) {
      case "watch":
        this.#add(stream, event.request.watchId, String(event.request.key));
        return { keys: [], over: false };
      case "unwatch":
        this.#remove(stream, event.watchId);
        return { keys: [], over: false };
      case "stream over": {
        const keys = [...stream.values()].map(({ key }) => key);
        for (const id of [...stream.keys()]) this.#remove(stream, id);
        return { keys, over: true };
      }
      case "watch answered":
        return this.#answered(stream, event);
    }
  }

  /** Where a new watch of the key begins, if the client need not ask for one or has just got it. */
  beginningsOf(key: string, place: number): Known[] {
    if (this.#created?.key === key) return [this.#created];
    if (this.#coming.has(key)) return [];
    const watches = this.#of(key);
    const sure = watches.every(({ createdAt }) => createdAt !== undefined);
    const reused = watches.filter(({ createdAt = Infinity }) => createdAt <= place);
    return [...new Set(reused.map(({ createdAt }) => createdAt!))].map((revision) => ({ revision, sure }));
  }

  isCreated(key: string): boolean {
    return this.#of(key).some(({ createdAt }) => createdAt !== undefined);
  }

  /** The revision of the last deletion that such a watch has reported. */
  deletionOf(key: string, createdAt: number): Known {
    const deletions = this.#of(key).flatMap((watch) =>
      watch.createdAt === createdAt ? [watch.deleted] : [],
    );
    if (deletions.length === 0) return { revision: 0, sure: true };
    const revision = Math.max(...deletions);
    return { revision, sure: Math.min(...deletions) === revision };
  }

  #answered(stream: Map<number, Watched>, { answer }: EventOf<"watch answered">) {
    const watch = stream.get(answer.watchId);
    if (watch === undefined) return { keys: [], over: false };
    const { key } = watch;
    if (answer.created) {
      const others = this.#of(key).filter(({ createdAt }) => createdAt === undefined);
      const revision = (watch.createdAt = Number(answer.header.revision));
      this.#created = { key, revision, sure: others.length === 1 };
    }
    for (const { kind, kv } of answer.events)
      if (kind === "DELETE") watch.deleted = Math.max(watch.deleted, Number(kv.modRevision));
    if (answer.cancelled) this.#remove(stream, answer.watchId);
    return { keys: [key], over: answer.cancelled };
  }

  #add(stream: Map<number, Watched>, id: number, key: string): void {
    const watch = { key, createdAt: undefined, deleted: 0 };
    stream.set(id, watch);
    this.#byKey.set(key, (this.#byKey.get(key) ?? new Set()).add(watch));
  }

  #remove(stream: Map<number, Watched>, id: number): void {
    const watch = stream.get(id);
    if (watch === undefined) return;
    stream.delete(id);
    this.#byKey.get(watch.key)?.delete(watch);
  }

  #of(key: string): Watched[] {
    return [...(this.#byKey.get(key) ?? [])];
  }
}
