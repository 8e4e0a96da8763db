import { EtcdUnavailableError } from "../errors.js";
import { pathOf } from "../keys.js";
import { checkPrefix } from "../base/options/check.js";
import { remainingTtls } from "../lock/queue/contenders.js";
import { SeenEntry } from "../lock/queue/seen-entry.js";
import { type Cluster, servicesOf } from "../lock/session/cluster.js";
import { type EtcdServices } from "../lock/session/connection.js";
import { Intake, Queues } from "./board-queues.js";
import type { BoardEvent, BoardQueue } from "./live-queue.js";
import { askBy } from "./inspect.js";
import { prefixRange } from "./list.js";
import { type QueueChange, QueueWatch } from "./queue-watch.js";

/** What a board has at most. A key takes about a kilobyte, and every 30 s all of them are read without values, to check the watch. */
export const MAX_KEYS = 20_000;

/** There are more keys under the prefix than a board has room for. */
export class TooManyKeysError extends Error {
  constructor(prefix: string) {
    super(`there are more than ${MAX_KEYS} keys under ${JSON.stringify(prefix)}: narrow the prefix`);
    this.name = "TooManyKeysError";
  }
}

export type { BoardEvent, BoardQueue } from "./live-queue.js";

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
  readonly #intake: Intake;
  readonly #watch: QueueWatch<SeenEntry>;
  readonly #unlisten: () => void;
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
    const path = pathOf(services, prefix);
    this.#queues = new Queues(path, options.prefix);
    this.#intake = new Intake(this.#queues, services.clock, (names, revision) => {
      this.revision = revision;
      listener.changed(names, revision);
    });
    this.#watch = new QueueWatch(
      {
        services,
        range: prefixRange(path),
        what: `watch the locks under "${prefix}"`,
        keep: (kv) => new SeenEntry(kv),
        check: (count) => {
          if (count > MAX_KEYS) throw new TooManyKeysError(prefix);
        },
      },
      {
        changed: (change) => this.#apply(change),
        failed: (error) => this.#fail(error),
      },
    );
    this.#unlisten = aborts.add(closed, () => this.#fail(closed.reason as Error));
  }

  /** The queue of a name; undefined if it has no entries. */
  queue(name: string): BoardQueue | undefined {
    return this.#queues.live.get(pathOf(this.services, name));
  }

  /** All queues that have entries, in no particular order. */
  queues(): Iterable<BoardQueue> {
    return this.#queues.live.values();
  }

  /** The names of the queues that have entries, in no particular order. */
  names(): Iterable<string> {
    return [...this.#queues.live.values()].map(({ name }) => name);
  }

  /** What the board saw of a name lately, the latest last: a few events, also if the queue is empty now. */
  history(name: string): readonly BoardEvent[] {
    return this.#queues.historyOf(pathOf(this.services, name));
  }

  /** How many queues have entries. */
  get size(): number {
    return this.#queues.live.size;
  }

  /** How often an entry became a holder since the board began, under any name. */
  get handOvers(): number {
    return this.#queues.grants;
  }

  /** Reads one key: resolves with why etcd has not answered, and with undefined if it has, also if it refuses. */
  async ask(timeoutMs: number, signal: AbortSignal): Promise<Error | undefined> {
    const wait = { timeoutMs, signal };
    const range = { ...prefixRange(pathOf(this.services, this.prefix)), limit: 1, keysOnly: true };
    try {
      await askBy(this.services, { what: "read a key", wait }, ({ services, policy }) =>
        services.client.range(range, policy),
      );
      return undefined;
    } catch (error) {
      return error instanceof EtcdUnavailableError ? error : undefined;
    }
  }

  /** Milliseconds that leases have left by etcd's word. */
  ttlsOf(leaseIds: readonly bigint[]): Promise<ReadonlyMap<bigint, number>> {
    return ttlsOf(this.services, leaseIds);
  }

  stop(): void {
    this.#stopped = true;
    this.#unlisten();
    this.#intake.stop();
    this.#watch.stop();
  }

  #apply(change: QueueChange<SeenEntry>): void {
    if (change.keys.size > MAX_KEYS) return this.#fail(new TooManyKeysError(this.prefix));
    this.#intake.add(change);
  }

  #fail(error: Error): void {
    if (this.#stopped) return;
    this.stop();
    this.listener.failed(error);
  }
}

/** What `tools/ui/` needs of a cluster, besides what every user has. */
export interface BoardDoor {
  open(prefix: string, listener: BoardListener): Board;
  /** Whether etcd has this lease no more. */
  hasEnded(leaseId: bigint): Promise<boolean>;
}

/**
 * `leasehold/ui` has a copy of this library's modules that knows no clusters. It finds the door of a cluster by this
 * symbol, which is the same in every copy.
 */
const DOOR: unique symbol = Symbol.for("leasehold.board") as never;

const READ_MS = 5000;

const ttlsOf = (services: EtcdServices, leaseIds: readonly bigint[]): Promise<ReadonlyMap<bigint, number>> =>
  remainingTtls(services, leaseIds, { what: "read a lease", giveUpMs: READ_MS, signal: services.closed });

/** Not enumerable: logs and comparisons of a cluster show nothing of it. */
export function addBoardDoor(cluster: Cluster): void {
  const door: BoardDoor = {
    open: (prefix, listener) => Board.open(cluster, prefix, listener),
    hasEnded: async (leaseId) => {
      return !(await ttlsOf(servicesOf(cluster), [leaseId])).has(leaseId);
    },
  };
  Object.defineProperty(cluster, DOOR, { value: door });
}

/** Undefined if it is no cluster. */
export const boardDoorOf = (cluster: unknown): BoardDoor | undefined =>
  (Object(cluster) as { readonly [DOOR]?: BoardDoor })[DOOR];
