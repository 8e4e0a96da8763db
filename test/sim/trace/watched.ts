import type { WatchRequest } from "../../../src/etcd/port.js";
import type { Watch } from "../../lab/model/world.js";
import type { EventOf, StreamEvent } from "./events.js";

interface Watched {
  /** As `rangeOf` has it. */
  readonly range: string;
  /** undefined until etcd has created it. */
  createdAt: number | undefined;
  /** By key: the revision of the last deletion that was delivered. */
  readonly deleted: Map<string, number>;
}

const END = "\0";

/** The range of a watch, as a key of maps. It begins with a key of its queue. */
export const rangeOf = ({ key, end }: Pick<WatchRequest, "key" | "end">): string =>
  end === undefined ? String(key) : `${String(key)}${END}${String(end)}`;

/** The same of a watch of the model. */
export function modelRange({ key, with: own }: Watch): string {
  if (own === undefined) return key;
  const [first, last] = [key, own].sort() as [string, string];
  return rangeOf({ key: first, end: `${last}\0` });
}

/** A key of the queue that the range is in. */
export const firstKeyOf = (range: string): string => range.split(END)[0]!;

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

  /** Something happens in the run. `coming`: by process, the ranges that it asks watches for because of this. */
  turn(coming: ReadonlyMap<number, ReadonlySet<string>>): void {
    for (const process of coming.keys()) this.of(process);
    for (const [process, watches] of this.#of) watches.turn(coming.get(process) ?? NO_KEYS);
  }
}

/** The watches of one process, as its connections show them. Which caller has which watch is known by key and revision. */
export class ProcessWatches {
  /** The ranges that the client asks watches for before anything else happens to it. */
  #coming: ReadonlySet<string> = new Set();
  /** The watch that etcd has just created. */
  #created: (Known & { readonly range: string }) | undefined;
  readonly #streams = new Map<number, Map<number, Watched>>();
  /** Also those of watches that are gone. */
  readonly #deletions = new Map<string, number>();
  readonly #byRange = new Map<string, Set<Watched>>();

  /** Something happens to the client. */
  turn(coming: ReadonlySet<string>): void {
    this.#coming = coming;
    this.#created = undefined;
  }

  /** Returns the ranges that it is about; `over`: their watches are gone. */
  follow(event: StreamEvent): { readonly ranges: readonly string[]; readonly over: boolean } {
    const stream = this.#streams.get(event.stream) ?? new Map<number, Watched>();
    this.#streams.set(event.stream, stream);
    switch (event.is) {
      case "watch":
        this.#add(stream, event.request.watchId, rangeOf(event.request));
        return { ranges: [], over: false };
      case "unwatch":
        this.#remove(stream, event.watchId);
        return { ranges: [], over: false };
      case "stream over": {
        const ranges = [...stream.values()].map(({ range }) => range);
        for (const id of [...stream.keys()]) this.#remove(stream, id);
        return { ranges, over: true };
      }
      case "watch answered":
        return this.#answered(stream, event);
    }
  }

  /** Where a new watch begins, if the client need not ask for one or has just got it. */
  beginningsOf(watch: Watch, place: number): Known[] {
    const range = modelRange(watch);
    if (this.#created?.range === range) return [this.#created];
    if (this.#coming.has(range)) return [];
    const watches = this.#of(range);
    const sure = watches.every(({ createdAt }) => createdAt !== undefined);
    const reused = watches.filter(({ createdAt = Infinity }) => createdAt <= place);
    return [...new Set(reused.map(({ createdAt }) => createdAt!))].map((revision) => ({ revision, sure }));
  }

  isCreated(key: string): boolean {
    return this.#of(key).some(({ createdAt }) => createdAt !== undefined);
  }

  /** The revision of the last deletion of the key that any watch has reported; 0: there is none. */
  lastDeletion(key: string): number {
    return this.#deletions.get(key) ?? 0;
  }

  /** The revision of the last deletion of its keys that such a watch has reported. */
  deletionOf(watch: Watch): Known {
    const reported = ({ deleted }: Watched): number =>
      Math.max(...[watch.key, watch.with ?? watch.key].map((key) => deleted.get(key) ?? 0));
    const deletions = this.#of(modelRange(watch)).flatMap((each) =>
      each.createdAt === watch.createdAt ? [reported(each)] : [],
    );
    if (deletions.length === 0) return { revision: 0, sure: true };
    const revision = Math.max(...deletions);
    return { revision, sure: Math.min(...deletions) === revision };
  }

  #answered(stream: Map<number, Watched>, { answer }: EventOf<"watch answered">) {
    const watch = stream.get(answer.watchId);
    if (watch === undefined) return { ranges: [], over: false };
    const { range, deleted } = watch;
    if (answer.created) {
      const others = this.#of(range).filter(({ createdAt }) => createdAt === undefined);
      const revision = (watch.createdAt = Number(answer.header.revision));
      this.#created = { range, revision, sure: others.length === 1 };
    }
    for (const { kind, kv } of answer.events) {
      if (kind !== "DELETE") continue;
      for (const of of [deleted, this.#deletions]) of.set(kv.key.toString(), Number(kv.modRevision));
    }
    if (answer.cancelled) this.#remove(stream, answer.watchId);
    return { ranges: [range], over: answer.cancelled };
  }

  #add(stream: Map<number, Watched>, id: number, range: string): void {
    const watch = { range, createdAt: undefined, deleted: new Map() };
    stream.set(id, watch);
    this.#byRange.set(range, (this.#byRange.get(range) ?? new Set()).add(watch));
  }

  #remove(stream: Map<number, Watched>, id: number): void {
    const watch = stream.get(id);
    if (watch === undefined) return;
    stream.delete(id);
    this.#byRange.get(watch.range)?.delete(watch);
  }

  #of(range: string): Watched[] {
    return [...(this.#byRange.get(range) ?? [])];
  }
}
