import type { KeyValue } from "../../../../src/etcd/port.js";
import type { Key } from "../../../lab/model/world.js";
import type { TraceStats } from "../checked.js";
import { partsOf } from "../requests.js";
import type { QueueChange } from "../session/changes.js";
import { SessionTrace } from "../session/session-trace.js";
import { THEIRS } from "../session/world-of.js";
import type { ProcessWatches } from "../watched.js";
import { Rewrites } from "./rewrites.js";

/** The queue of one name: its keys as etcd has them, and the sessions that use it. */
export class NameTrace {
  readonly #sessions = new Map<string, { readonly process: number; readonly trace: SessionTrace }>();
  readonly #living = new Map<string, Key>();
  readonly #owners = new Map<number, string>();
  readonly rewrites = new Rewrites();
  #revision = 1;

  constructor(
    private readonly values: (value: string) => number,
    private readonly stats: TraceStats,
  ) {}

  get keys(): readonly Key[] {
    return [...this.#living.values()];
  }

  valueOf(key: string): number | undefined {
    return this.#living.get(key)?.value;
  }

  get revision(): number {
    return this.#revision;
  }

  /** The session of a process; undefined if another process has it. */
  session(lease: string, process: number, watches: ProcessWatches): SessionTrace {
    const known = this.#sessions.get(lease);
    if (known) return known.trace;
    const trace = new SessionTrace({ lease, watches, queue: this, stats: this.stats });
    this.#sessions.set(lease, { process, trace });
    return trace;
  }

  known(lease: string): SessionTrace | undefined {
    return this.#sessions.get(lease)?.trace;
  }

  /** The session whose place was created at a revision. */
  ownerOf(revision: number): SessionTrace | undefined {
    const lease = this.#owners.get(revision);
    return lease === undefined ? undefined : this.known(lease);
  }

  of(process: number): SessionTrace[] {
    return [...this.#sessions.values()].filter((each) => each.process === process).map(({ trace }) => trace);
  }

  /** The changes of one revision to its keys. */
  changed(
    what: string,
    events: readonly ChangedKey[],
    more: Omit<QueueChange, "puts" | "deletes" | "rewrites">,
  ): void {
    const rewrites = events.flatMap(({ key, kv }) => {
      const old = kv && this.#living.get(key);
      return old ? [this.#rewritten(what, old, kv)] : [];
    });
    const puts = events.flatMap(({ key, kv }) => (kv && !this.#living.has(key) ? [this.#put(key, kv)] : []));
    const deletes = events.flatMap(({ key, kv }) => (kv ? [] : (this.#living.get(key) ?? [])));
    if (puts.length + deletes.length + rewrites.length === 0) return;
    for (const { trace } of this.#sessions.values())
      trace.changed(what, { puts, deletes, rewrites, ...more });
    for (const key of rewrites) this.#living.set(key.key, key);
    for (const key of puts) {
      this.rewrites.created(key);
      this.#living.set(key.key, key);
      this.#owners.set(key.created, partsOf(key.key).lease);
    }
    for (const { key } of deletes) this.#living.delete(key);
    this.#revision = more.revision;
  }

  #rewritten(what: string, old: Key, { value, modRevision }: KeyValue): Key {
    this.rewrites.put(what, old, { value, revision: Number(modRevision) });
    return { ...old, value: this.values(value) };
  }

  #put(key: string, { value, modRevision }: KeyValue): Key {
    const name = key.slice(0, key.lastIndexOf("/"));
    const created = Number(modRevision);
    return { name, key, value: this.values(value), lease: THEIRS, created, deleted: 0, deletedBy: "nobody" };
  }
}

export interface ChangedKey {
  readonly key: string;
  /** undefined: it was deleted. */
  readonly kv: KeyValue | undefined;
}
