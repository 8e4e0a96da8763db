import type { Clock, Timer } from "../time.js";
import { TokenExpiredError, type Member, type WatchAnswer, type WatchStream } from "./rpc.js";
import type { Watch, WatchCarrier } from "./watch-handle.js";

/** For so long a new watch, or a probe, may stay unanswered. */
const PATIENCE_MS = 1500;
/**
 * On one stream. When a session with thousands of places dies, their deletions come in one burst, and etcd sets aside
 * what its buffer for the stream cannot take. 10,000 at once, etcd 3.5: 500 to 830 ms on one stream, 190 to 270 on ten,
 * and no faster on more. A single event comes equally fast on any.
 */
const MAX_WATCHES = 1000;

/** What the hub hears of a stream. */
export interface StreamListener {
  /** The member of this ID has created a watch. */
  created(memberId: string): void;
  /** The watches live on, but no new one will be created on this stream. */
  tokenExpired(): void;
  failed(why?: Error): void;
}

/** One stream with its watches. Creates are pipelined: no watch waits for another one's answer. */
export class OpenStream implements WatchCarrier {
  readonly watches = new Map<number, Watch>();
  /**
   * Creates not answered yet, in order: etcd tells a refused one by its place in the order only. Never so long that
   * `shift` would have to move much.
   */
  readonly #creating: Watch[] = [];
  readonly #stream: WatchStream;
  /** Something was asked and nothing has been heard since. */
  #timer: Timer | undefined;
  #closed = false;

  constructor(
    private readonly member: Member,
    private readonly clock: Clock,
    private readonly listener: StreamListener,
  ) {
    this.#stream = member.watch({
      answer: (answer) => this.#closed || this.#answered(answer),
      ended: (error) => this.#closed || this.#ended(error),
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  get full(): boolean {
    return Math.max(this.watches.size, this.#creating.length) >= MAX_WATCHES;
  }

  create(watch: Watch): void {
    watch.carrier = this;
    this.watches.set(watch.id, watch);
    this.#creating.push(watch);
    const { key, end, events, startRevision = 0n } = watch.target;
    this.#stream.create({ watchId: watch.id, key, ...(end !== undefined && { end }), events, startRevision });
    this.#timer ??= this.#patience();
  }

  drop(watch: Watch): void {
    if (this.watches.delete(watch.id) && !this.#closed) this.#stream.cancel(watch.id);
  }

  probe(): void {
    this.#stream.probe();
    this.#timer ??= this.#patience();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#stream.close();
  }

  #ended(error: Error): void {
    if (error instanceof TokenExpiredError) this.listener.tokenExpired();
    else this.listener.failed(error);
  }

  #patience(): Timer {
    return this.clock.after(PATIENCE_MS, () => {
      // After a pause of this process the answer may be waiting in the socket: timers run before it is read.
      this.#timer = this.clock.afterPendingEvents(() => this.listener.failed());
    });
  }

  #answered(answer: WatchAnswer): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (answer.created) this.#created(answer);
    else if (answer.cancelled) this.#cancelled(answer);
    else this.#deliver(answer);
    if (!this.#closed && this.#creating.length > 0) this.#timer ??= this.#patience();
  }

  #deliver({ watchId, events }: WatchAnswer): void {
    for (const event of events) {
      // Its owner may cancel it on the first.
      const watch = this.watches.get(watchId);
      if (watch?.wants(event)) watch.listener.event(event.kv);
    }
  }

  #created({ header, cancelled, cancelReason }: WatchAnswer): void {
    const watch = this.#creating.shift();
    if (!watch) return;
    if (cancelled) return this.#refused(watch, cancelReason);
    this.listener.created(header.memberId);
    // Its owner may have cancelled it meanwhile.
    if (this.watches.has(watch.id)) watch.listener.created(header.revision);
  }

  #refused(watch: Watch, reason: string): void {
    const error = this.member.failure(reason);
    if (error instanceof TokenExpiredError) return this.listener.tokenExpired();
    if (this.watches.delete(watch.id)) watch.listener.refused(error);
  }

  /** By etcd, not by us: the revision to start from was compacted. The owner starts again from now, with a read. */
  #cancelled({ watchId }: WatchAnswer): void {
    const watch = this.watches.get(watchId);
    if (!watch) return;
    this.watches.delete(watchId);
    watch.over = true;
    watch.listener.moved();
  }
}
