import { count, type TraceStats } from "../checked.js";
import { Rejected } from "../rejected.js";
import { partsOf, type Request } from "../requests.js";
import type { SessionTrace } from "../session/session-trace.js";
import { RunWatches } from "../watched.js";
import { Joints } from "./joint.js";
import { NameTrace } from "./name-trace.js";

/** The queues of a run by name, and what they share. */
export class Queues {
  readonly stats: TraceStats = { steps: 0, largest: 0, counts: {} };
  readonly watches = new RunWatches();
  readonly joints = new Joints();
  readonly #names = new Map<string, NameTrace>();
  readonly #values = new Map<string, number>();

  /** `locks`: the prefix of the names. */
  constructor(readonly locks: string) {}

  of(name: string): NameTrace {
    const queue = this.#names.get(name) ?? new NameTrace((value) => this.value(value), this.stats);
    this.#names.set(name, queue);
    return queue;
  }

  /** The session of a request, unless it is new to the queue. */
  sessionOf(request: Request): SessionTrace | undefined {
    return request.is === "other" ? undefined : this.#known(request);
  }

  /** The session that a key belongs to by its name. */
  sessionAt(key: string): SessionTrace | undefined {
    return this.#known(partsOf(key));
  }

  /** @throws Rejected if no place of the queue was created at the revision. */
  ownerOf(name: string, revision: number): SessionTrace {
    const session = this.#names.get(name)?.ownerOf(revision);
    if (session) return session;
    throw new Rejected(`the queue ${name} is read for a place created at ${revision}, which never was`, []);
  }

  /** The sessions of a process in one queue. */
  sessionsOf(process: number, name: string): SessionTrace[] {
    return this.#names.get(name)?.of(process) ?? [];
  }

  /** A session is over for its client. */
  over(lease: string, how: string): void {
    for (const queue of this.#names.values()) queue.known(lease)?.over(`session ${lease} ${how}`);
  }

  /** Values are numbers in the model. */
  value(value: string): number {
    const number = this.#values.get(value) ?? this.#values.size + 1;
    this.#values.set(value, number);
    return number;
  }

  count(step: string): void {
    count(this.stats, step);
  }

  #known({ name, lease }: { readonly name: string; readonly lease: string }): SessionTrace | undefined {
    return this.#names.get(name)?.known(lease);
  }
}
