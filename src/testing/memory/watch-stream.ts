import type { Header, WatchAnswer, WatchRequest } from "../../etcd/port.js";
import type { Scheduler } from "./event-queue.js";
import { COMPACTED, type Refusal, type ServerStream, type WatchCommand } from "./protocol.js";
import type { Quirks } from "./quirks.js";
import type { Random } from "./random.js";
import { type Interval, intervalOf } from "./store.js";
import type { Channel, WatchResponse, Watcher, Watches } from "./watches.js";

/** The reasons of storage/mvcc/watcher.go. */
const EMPTY_RANGE = "mvcc: watcher range is empty";
const DUPLICATE_ID = "mvcc: duplicate watch ID provided on the WatchStream";
/**
 * etcd reads its revision and registers the watch in two steps. Other requests come in between with this probability, far more
 * often than with a real etcd, for up to so many milliseconds.
 */
const RACE = 0.1;
const RACE_MS = 0.1;

export interface WatchStreamOptions {
  readonly watches: Watches;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly quirks: Quirks;
  /** The probability that other requests come between the two steps of a creation. Default: that of the simulation. */
  readonly race?: number | undefined;
  /** The header of an answer; default: with the present revision. */
  readonly header: (revision?: bigint) => Header;
  readonly out: (answer: WatchAnswer | Refusal) => void;
  /** Why a watch is not created. */
  readonly check: (request: WatchRequest) => string | undefined;
}

/** An answer without events. */
type Control = Omit<WatchAnswer, "compacted" | "events">;

/** A watch stream: its commands are executed one after the other (recvLoop in api/v3rpc/watch.go). */
export class WatchServerStream implements ServerStream<WatchCommand> {
  readonly #options: WatchStreamOptions;
  readonly #sendLoop: SendLoop;
  /** By ID. A watch that ended because of a compaction stays until the client cancels it. */
  readonly #watchers = new Map<number, Watcher>();
  readonly #commands: WatchCommand[] = [];
  #nextId = 0;
  #busy = false;
  #closed = false;

  constructor(options: WatchStreamOptions) {
    this.#options = options;
    this.#sendLoop = new SendLoop(options);
  }

  send(command: WatchCommand): void {
    if (this.#closed) return;
    this.#commands.push(command);
    this.#next();
  }

  close(): void {
    this.#closed = true;
    this.#sendLoop.close();
    for (const watcher of this.#watchers.values()) this.#options.watches.remove(watcher);
    this.#watchers.clear();
  }

  #next(): void {
    while (!this.#busy && !this.#closed) {
      const command = this.#commands.shift();
      if (!command) return;
      if ("create" in command) this.#create(command.create);
      else if ("cancel" in command) this.#cancel(command.cancel);
      else this.#probe();
    }
  }

  #create(request: WatchRequest): void {
    const { quirks, header, check } = this.#options;
    const { startRevision } = request;
    if (startRevision < 0n && quirks.negativeStartRejected) return this.#created(header(), COMPACTED.refused);
    const reason = check(request);
    if (reason !== undefined) return this.#created(header(), reason);
    if (quirks.startRevisionReadFirst) {
      const before = header();
      const first = startRevision === 0n ? before.revision + 1n : startRevision;
      return this.#race(() => this.#created(before, this.#register({ ...request, startRevision: first })));
    }
    const registered = this.#register(request);
    this.#race(() => this.#created(header(), registered));
  }

  /** Runs `step` after a moment in which other requests may be executed, or immediately. */
  #race(step: () => void): void {
    const { random, scheduler, race = RACE } = this.#options;
    if (!random.chance(race)) return step();
    this.#busy = true;
    scheduler.after(random.next() * RACE_MS, () => {
      if (this.#closed) return;
      this.#busy = false;
      step();
      this.#next();
    });
  }

  /** The ID of the new watch, or the reason why there is none (Watch in storage/mvcc/watcher.go). */
  #register({ watchId, key, end, startRevision, events }: WatchRequest): number | string {
    const interval = intervalOf(key.length === 0 ? "\0" : key, end);
    if (isEmpty(interval)) return EMPTY_RANGE;
    if (watchId !== 0 && this.#watchers.has(watchId)) return DUPLICATE_ID;
    const id = watchId === 0 ? this.#freeId() : watchId;
    const channel = this.#sendLoop;
    const watcher = { watchId: id, interval, startRevision, minRevision: startRevision, events, channel };
    this.#watchers.set(id, watcher);
    this.#options.watches.add(watcher);
    return id;
  }

  #freeId(): number {
    while (this.#watchers.has(this.#nextId)) this.#nextId++;
    return this.#nextId++;
  }

  #created(header: Header, result: number | string): void {
    const failed = typeof result === "string";
    const [watchId, cancelReason] = failed ? [-1, result] : [result, ""];
    this.#control({ header, watchId, created: true, cancelled: failed, cancelReason });
  }

  /** A watch that does not exist is cancelled without an answer. */
  #cancel(watchId: number): void {
    const watcher = this.#watchers.get(watchId);
    if (!watcher) return;
    this.#options.watches.remove(watcher);
    this.#watchers.delete(watchId);
    const header = this.#options.header();
    this.#control({ header, watchId, created: false, cancelled: true, cancelReason: "" });
  }

  #probe(): void {
    const { quirks, watches, header } = this.#options;
    if (!quirks.progressAlways) return watches.progress([...this.#watchers.values()]);
    this.#control({ header: header(), watchId: -1, created: false, cancelled: false, cancelReason: "" });
  }

  #control({ header, watchId, created, cancelled, cancelReason }: Control): void {
    this.#sendLoop.control({
      header,
      watchId,
      created,
      cancelled,
      cancelReason,
      compacted: false,
      events: [],
    });
  }
}

const isEmpty = ({ key, end }: Interval): boolean => end !== undefined && end !== "" && key >= end;

/** The buffer for events (chanBufLen in storage/mvcc/watchable_store.go). */
const BUFFER = 128;

type Options = Pick<WatchStreamOptions, "scheduler" | "random" | "header" | "out">;

/**
 * Sends what the watches of a stream report, and the answers to its commands. These are two queues: which one is next is
 * random if both have something (sendLoop in api/v3rpc/watch.go).
 */
export class SendLoop implements Channel {
  readonly #options: Options;
  readonly #responses: WatchResponse[] = [];
  readonly #answers: WatchAnswer[] = [];
  /** The watches whose creation was answered. */
  readonly #announced = new Set<number>();
  /** What came before the answer to the creation. */
  readonly #early = new Map<number, WatchAnswer[]>();
  #runs = false;
  #closed = false;

  constructor(options: Options) {
    this.#options = options;
  }

  push(response: WatchResponse): boolean {
    if (this.#responses.length >= BUFFER) return false;
    this.#responses.push(response);
    this.#run();
    return true;
  }

  control(answer: WatchAnswer): void {
    this.#answers.push(answer);
    this.#run();
  }

  close(): void {
    this.#closed = true;
  }

  #run(): void {
    if (this.#runs || this.#closed) return;
    this.#runs = true;
    this.#options.scheduler.after(0, () => {
      this.#runs = false;
      while (!this.#closed && this.#step());
    });
  }

  /** Returns false if there is nothing to send. */
  #step(): boolean {
    const [answer] = this.#answers;
    const [response] = this.#responses;
    if (answer && (!response || this.#options.random.chance(0.5))) {
      this.#answers.shift();
      this.#sendAnswer(answer);
    } else if (response) {
      this.#responses.shift();
      this.#sendResponse(response);
    }
    return answer !== undefined || response !== undefined;
  }

  #sendAnswer(answer: WatchAnswer): void {
    const { watchId, cancelled, created } = answer;
    this.#options.out(answer);
    if (cancelled && watchId !== -1) this.#announced.delete(watchId);
    else if (created) {
      this.#announced.add(watchId);
      for (const early of this.#early.get(watchId) ?? []) if (!this.#closed) this.#options.out(early);
      this.#early.delete(watchId);
    }
  }

  #sendResponse({ watchId, events, revision, compacted }: WatchResponse): void {
    const header = this.#options.header(revision);
    const answer = {
      ...{ header, watchId, events, compacted, cancelled: compacted },
      ...{ created: false, cancelReason: "" },
    };
    if (watchId === -1 || this.#announced.has(watchId)) return this.#options.out(answer);
    const early = this.#early.get(watchId);
    if (early) early.push(answer);
    else this.#early.set(watchId, [answer]);
  }
}
