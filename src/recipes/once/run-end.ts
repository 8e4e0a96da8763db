import type { WatchEvent } from "../../etcd/port.js";
import type { Interruption, Watch, WatchListener } from "../../etcd/watch-hub.js";
import type { Dependent, Lease, SessionEnd } from "../../lock/session/lease.js";
import type { RunningEntry } from "./plan.js";

/** The average time after which a wait looks without a reason. */
const SLOW_LOOK_MS = 30_000;
const GRAIN_MS = 500;

/** Waits until the entry of another's run has ended, or may have. It has a session, though no place in the queue. */
export class RunEnd implements WatchListener, Dependent {
  readonly ended: Promise<void>;
  #resolve!: () => void;
  #reject!: (error: Error) => void;
  #watch: Watch | undefined;
  readonly #timer: { cancel(): void };

  /** `since`: the revision at which the entry was there. */
  constructor(
    private readonly lease: Lease,
    private readonly entry: RunningEntry,
    private readonly since: bigint,
  ) {
    this.ended = new Promise((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]));
    const { clock, timers } = lease.services;
    const lookMs = SLOW_LOOK_MS * (0.75 + clock.random() / 2);
    this.#timer = timers.add(lookMs, () => this.stop(), GRAIN_MS);
    lease.waits.add(this);
    this.#follow();
  }

  /** The wait is over, whether the run has ended or not. */
  stop(): void {
    this.#end();
    this.#resolve();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#end();
    this.#reject(reason);
  }

  created(): void {}

  events(events: readonly WatchEvent[]): void {
    if (events.some(({ kv }) => kv.modRevision > this.entry.revision)) this.stop();
  }

  interrupted(why: Interruption): void {
    if (why === "compacted") this.stop();
    else this.#follow();
  }

  refused(error: Error): void {
    this.#end();
    this.#reject(error);
  }

  /** One that begins in the past is up to 100 ms late, and needs no read. */
  #follow(): void {
    const { key } = this.entry;
    const startRevision = this.since + 1n;
    this.#watch = this.lease.services.watches.watch({ key, events: "DELETE", startRevision }, this);
  }

  #end(): void {
    this.lease.waits.delete(this);
    this.#timer.cancel();
    this.#watch?.cancel();
    this.#watch = undefined;
  }
}
