import type { WatchAnswer } from "../../../../src/etcd/port.js";
import type { Channel, WatchResponse } from "./watcher.js";
import type { WatchStreamOptions } from "./watch-stream.js";

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
