import type { KeyValue, WatchEvent } from "../../etcd/port.js";
import type { Interruption, Watch, WatchListener } from "../../etcd/watch-hub.js";
import type { Dependent, SessionEnd } from "../session/lease.js";
import type { JoinedEntry } from "./entry.js";
import { queueRange } from "./lock-mode.js";

/** etcd may leave the first event of a watch to the next one. */
const AGAIN_MS = 5000;
const GRAIN_MS = 500;

/** What others have put into the queue of an entry between an earlier revision and that of its own put, which is the last event. */
export class PutsBefore implements WatchListener, Dependent {
  /** In their order, whether they are still there or not. `undefined`: etcd has compacted that revision. */
  readonly found: Promise<readonly KeyValue[] | undefined>;
  #found: KeyValue[] = [];
  #resolve!: (found: readonly KeyValue[] | undefined) => void;
  #reject!: (error: Error) => void;
  #watch: Watch | undefined;
  #timer: { cancel(): void } | undefined;

  constructor(
    private readonly entry: JoinedEntry,
    private readonly since: bigint,
  ) {
    this.found = new Promise((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]));
    entry.lease.waits.add(this);
    this.#follow();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#end();
    this.#reject(reason);
  }

  created(): void {}

  events(events: readonly WatchEvent[]): void {
    const { revision } = this.entry;
    this.#found.push(...events.flatMap(({ kv }) => (kv.modRevision < revision ? kv : [])));
    if (!events.some(({ kv }) => kv.modRevision >= revision)) return;
    this.#end();
    this.#resolve(this.#found);
  }

  interrupted(why: Interruption): void {
    if (why === "broken") return this.#follow();
    this.#end();
    this.#resolve(undefined);
  }

  refused(error: Error): void {
    this.#end();
    this.#reject(error);
  }

  #follow(): void {
    this.#cancel();
    this.#found = [];
    const { path, lease } = this.entry;
    const { timers, watches } = lease.services;
    const target = { ...queueRange(path), events: "PUT", startRevision: this.since + 1n } as const;
    this.#watch = watches.watch(target, this);
    this.#timer = timers.add(AGAIN_MS, () => this.#follow(), GRAIN_MS);
  }

  #cancel(): void {
    this.#timer?.cancel();
    this.#watch?.cancel();
  }

  #end(): void {
    this.entry.lease.waits.delete(this);
    this.#cancel();
  }
}
