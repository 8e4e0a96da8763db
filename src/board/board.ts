import type { Timer } from "../async/clock.js";
import { prefixRange } from "../inspect/names.js";
import { QueueWatch, type QueueSnapshot } from "../observe/queue-watch.js";
import { checkPrefix } from "../options/check.js";
import type { Cluster } from "../session/cluster.js";
import { servicesOf, type EtcdServices } from "../session/connection.js";
import type { BoardKey } from "./board-entry.js";
import type { BoardQueue } from "./board-queue.js";
import type { BoardEvent } from "./history.js";
import { Queues } from "./queues.js";
import { boardKeyOf, MAX_KEYS, readBoard, TooManyKeysError } from "./read-board.js";

export type { BoardEntry } from "./board-entry.js";
export type { BoardQueue } from "./board-queue.js";
export type { BoardEvent, BoardEventKind } from "./history.js";
export { MAX_KEYS, TooManyKeysError } from "./read-board.js";

/** Receives what a `Board` finds. It is never called before `Board.open()` has returned, nor after `stop()`. */
export interface BoardListener {
  /**
   * Called after the first read, even if there is nothing, and then once in a turn of the event loop in which queues have
   * changed. A name that has no queue any more is among them.
   */
  changed(names: ReadonlySet<string>, revision: bigint): void;
  /** The board has stopped: etcd rejects a request, there are too many keys, or the cluster was closed. */
  failed(error: Error): void;
}

/**
 * The queues of all locks and elections whose names start with a prefix, as they are now, from one read and one watch.
 * The names and their entries are those of `list()` and `inspect()`: a nested name has a queue of its own, and counts in those
 * of the names above it. It needs no session, and no permission but to read the prefix.
 * During an outage the board stays as it was, and follows what it missed afterwards: see `ClusterHealth` for whether etcd
 * answers. It has room for `MAX_KEYS` keys, and fails with `TooManyKeysError` beyond them.
 */
export class Board {
  /** The state is that of this revision; 0n before the first read. */
  revision = 0n;
  readonly #queues: Queues;
  readonly #watch: QueueWatch<BoardKey>;
  readonly #unlisten: () => void;
  #names = new Set<string>();
  #reporting: Timer | undefined;
  #stopped = false;

  /** @throws {TypeError | RangeError} on a bad prefix. */
  static open(cluster: Cluster, prefix: string, listener: BoardListener): Board {
    return new Board(servicesOf(cluster), checkPrefix(prefix), listener);
  }

  constructor(
    private readonly services: EtcdServices,
    private readonly prefix: string,
    private readonly listener: BoardListener,
  ) {
    const { aborts, closed, options } = services;
    this.#queues = new Queues(options.prefix);
    this.#watch = new QueueWatch<BoardKey>(
      {
        services,
        range: prefixRange(prefix),
        what: `watch the locks under "${prefix}"`,
        keep: (kv) => boardKeyOf(prefix, kv),
        read: (policy) => readBoard({ services, policy }, prefix),
      },
      {
        changed: (snapshot, keys) => this.#apply(snapshot, keys),
        failed: (error) => this.#fail(error),
      },
    );
    this.#unlisten = aborts.add(closed, () => this.#fail(closed.reason as Error));
  }

  /** The queue of a name; undefined if it has no entries. */
  queue(name: string): BoardQueue | undefined {
    return this.#queues.live.get(name);
  }

  /** Of the queues that have entries, in no particular order. */
  names(): Iterable<string> {
    return this.#queues.live.keys();
  }

  /** What the board saw of a name lately, the latest last: a few events, also if the queue is empty now. */
  history(name: string): readonly BoardEvent[] {
    return this.#queues.historyOf(name);
  }

  /** How many queues have entries. */
  get size(): number {
    return this.#queues.live.size;
  }

  /** How often an entry became a holder since the board began, under any name. */
  get handOvers(): number {
    return this.#queues.grants;
  }

  stop(): void {
    this.#stopped = true;
    this.#unlisten();
    this.#reporting?.cancel();
    this.#watch.stop();
  }

  #apply(snapshot: QueueSnapshot<BoardKey>, changed: ReadonlySet<string> | undefined): void {
    if (this.#stopped) return;
    if (snapshot.keys.size > MAX_KEYS) return this.#fail(new TooManyKeysError(this.prefix));
    const { clock } = this.services;
    const at = this.revision === 0n ? undefined : clock.monotonic();
    for (const name of this.#queues.apply(snapshot, changed, at)) this.#names.add(name);
    this.revision = snapshot.revision;
    // After the events that have arrived together.
    this.#reporting ??= clock.afterPendingEvents(() => this.#report());
  }

  #report(): void {
    this.#reporting = undefined;
    const names = this.#names;
    this.#names = new Set();
    this.listener.changed(names, this.revision);
  }

  #fail(error: Error): void {
    if (this.#stopped) return;
    this.stop();
    this.listener.failed(error);
  }
}
