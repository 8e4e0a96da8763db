import { isUtf8 } from "node:buffer";
import type { Clock, Timer } from "../base/util/clock.js";
import {
  type EventKind,
  type Header,
  type Member,
  MemberRefusedError,
  notEtcds,
  TokenExpiredError,
  UnansweredError,
  type WatchAnswer,
  type WatchEvent,
  type WatchStream,
} from "./port.js";

/**
 * Why a watch ended. `broken`: its stream is gone; another watch can start from the revision after the last one that was
 * reported. `compacted`: etcd no longer has the revision to start from; only a read shows the present state.
 */
export type Interruption = "broken" | "compacted";

/** Whoever needs what a watch reports. After `interrupted` or `refused` it has ended. */
export interface WatchListener {
  /** The watch delivers what happens after `revision`. */
  created(revision: bigint): void;
  /**
   * In the order of revisions, and never only a part of one: etcd puts all events of a revision that a watch is made for into
   * one answer. Two watches have no such order between them (measured: up to 10.8 ms apart).
   */
  events(events: readonly WatchEvent[]): void;
  /** This watch reports nothing more: start another one. */
  interrupted(why: Interruption): void;
  /** etcd rejects this watch. */
  refused(error: Error): void;
}

export interface WatchTarget {
  readonly key: string | Buffer;
  readonly end?: string | Buffer | undefined;
  readonly events: EventKind | "ALL";
  /** Default 0n: from now on. */
  readonly startRevision?: bigint;
  /** An existing watch may be reused if it reports every event from this revision on. */
  readonly reuseFrom?: bigint;
  /** The same, for a wide one that others share. */
  readonly shareFrom?: bigint;
  /** Other watches on deletions in its range may share it. */
  readonly isWide?: boolean;
}

/** Holds a watch until it is cancelled: a stream, or the hub while there is no stream. */
export interface WatchOwner {
  drop(watch: Watch): void;
  /** Whether the watch continues, for reuse. If so, its listener is not called any more. */
  keepForReuse(watch: Watch): boolean;
}

/** A Buffer from etcd keeps its whole message in memory; the same key as text is smaller. */
export const compactKey = (key: Buffer): string | Buffer => (isUtf8(key) ? key.toString() : Buffer.from(key));

const bytesOf = (key: string | Buffer): Buffer => (typeof key === "string" ? Buffer.from(key) : key);

/** A key of any bytes as text without loss, for maps. */
export const keyText = (key: string | Buffer): string => bytesOf(key).toString("latin1");

const boundsOf = ({ key, end }: Watch): { readonly from: Buffer; readonly end: Buffer | undefined } => ({
  from: bytesOf(key),
  end: end === undefined ? undefined : bytesOf(end),
});

/** The owner of a watch that was just made. */
const NOBODY: WatchOwner = { drop: () => undefined, keepForReuse: () => false };

/** One watch. After `cancel` its listener is not called any more. To take the watch over, set `listener`. */
export class Watch {
  /** The watch's stream is gone, or etcd has ended the watch: no more events arrive. */
  over = false;
  /** The watch reports what happens after this revision; `undefined` until etcd has created it. */
  createdAt: bigint | undefined;
  /** When the answer that it is created arrived, by the monotonic clock of the hub. */
  createdMs = -Infinity;
  /** Revision of the last event that it reported. */
  lastEvent = 0n;
  /** Made once, on the first event: every event is compared with these bounds, and most watches never get one. */
  #bounds: { readonly from: Buffer; readonly end: Buffer | undefined } | undefined;

  readonly key: string | Buffer;
  readonly end: string | Buffer | undefined;
  readonly events: WatchTarget["events"];
  readonly startRevision: bigint;
  owner: WatchOwner = NOBODY;

  constructor(
    readonly id: number,
    { key, end, events, startRevision = 0n }: WatchTarget,
    public listener: WatchListener,
  ) {
    this.key = key;
    this.end = end;
    this.events = events;
    this.startRevision = startRevision;
  }

  cancel(): void {
    this.owner.drop(this);
  }

  /** Use instead of `cancel` where the same key may soon be watched again. */
  keepForReuse(): void {
    if (!this.owner.keepForReuse(this)) this.cancel();
  }

  /** Whether the watch was made for this event: a lock may depend on a single one. */
  wants({ kind, kv }: WatchEvent): boolean {
    if (this.events !== "ALL" && kind !== this.events) return false;
    return this.covers(kv.key);
  }

  covers(key: Buffer): boolean {
    const { from, end } = (this.#bounds ??= boundsOf(this));
    return end === undefined ? key.equals(from) : key.compare(from) >= 0 && key.compare(end) < 0;
  }
}

/** How long a new watch, or a probe, may stay unanswered. */
const PATIENCE_MS = 1500;
/** With thousands of creates in progress, one stream may wait longer while its member answers on the others. */
const MAX_PATIENCE = 10;
/** etcd 3.5 and later leaves a probe unanswered while a watch of the stream catches up, up to 100 ms: probe twice. */
const REPROBE_MS = 500;
/**
 * Watches on one stream. When a session with thousands of queue entries dies, their deletions come in one burst, and etcd
 * sets aside what exceeds its buffer for the stream. 10,000 at once, etcd 3.5: 500 to 830 ms on one stream, 190 to 270 on
 * ten, and no faster on more. A single event arrives equally fast on any number.
 */
const MAX_WATCHES = 1000;

/** What the streams to one member share. */
export interface StreamGroup {
  readonly member: Member;
  /** Number of answers on all of them: the member is alive while they arrive. */
  answers: number;
  /** A watch was created, with this header. False: not by a member of this cluster, and the member has failed now. */
  created(header: Header): boolean;
  /** Existing watches continue, but etcd creates no new ones on these streams. */
  tokenExpired(): void;
  failed(why?: Error): void;
  /** A watch has reported a deletion, whether anybody listens to it or not. */
  deleted(event: WatchEvent): void;
  keepForReuse(watch: Watch): void;
}

/** One stream with its watches. Creates are pipelined: no watch waits for another one's answer. */
export class OpenStream implements WatchOwner {
  readonly watches = new Map<number, Watch>();
  /**
   * Unanswered creates, in order: etcd identifies a rejected one only by its position in the order. Never so long that
   * `shift` would be slow.
   */
  readonly #creating: Watch[] = [];
  readonly #stream: WatchStream;
  /** Runs while a create or a probe has had no answer. */
  #timer: Timer | undefined;
  #closed = false;

  constructor(
    private readonly group: StreamGroup,
    private readonly clock: Clock,
  ) {
    this.#stream = group.member.watch({
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
    watch.owner = this;
    this.watches.set(watch.id, watch);
    this.#creating.push(watch);
    const { key, end, events, startRevision } = watch;
    this.#stream.create({ watchId: watch.id, key, ...(end !== undefined && { end }), events, startRevision });
    this.#timer ??= this.#patience();
  }

  drop(watch: Watch): void {
    if (this.watches.delete(watch.id) && !this.#closed) this.#stream.cancel(watch.id);
  }

  keepForReuse(watch: Watch): boolean {
    const there = !this.#closed && watch.createdAt !== undefined && this.watches.has(watch.id);
    const keeps = there && watch.events === "DELETE";
    if (keeps) this.group.keepForReuse(watch);
    return keeps;
  }

  probe(): void {
    this.#stream.probe();
    this.#timer ??= this.clock.after(REPROBE_MS, () => {
      this.#stream.probe();
      this.#timer = this.#patience(PATIENCE_MS - REPROBE_MS);
    });
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#stream.close();
  }

  #ended(error: Error): void {
    if (error instanceof TokenExpiredError) this.group.tokenExpired();
    else this.group.failed(error);
  }

  #patience(ms = PATIENCE_MS, times = 1): Timer {
    const { answers } = this.group;
    return this.clock.after(ms, () => {
      // After this process was paused, the answer may still be in the socket: timers run before it is read.
      this.#timer = this.clock.afterPendingEvents(() => {
        if (this.group.answers === answers || times === MAX_PATIENCE) return this.group.failed();
        this.#timer = this.#patience(PATIENCE_MS, times + 1);
      });
    });
  }

  #answered(answer: WatchAnswer): void {
    this.group.answers++;
    this.#timer?.cancel();
    this.#timer = undefined;
    if (answer.created) this.#created(answer);
    else if (answer.cancelled) this.#cancelled(answer);
    else this.#deliver(answer);
    if (!this.#closed && this.#creating.length > 0) this.#timer ??= this.#patience();
  }

  #deliver({ watchId, events }: WatchAnswer): void {
    for (const event of events) if (event.kind === "DELETE") this.group.deleted(event);
    const watch = this.watches.get(watchId);
    const wanted = events.filter((event) => watch?.wants(event));
    const last = wanted.at(-1);
    if (!watch || !last) return;
    watch.lastEvent = last.kv.modRevision;
    watch.listener.events(wanted);
  }

  #created({ header, cancelled, cancelReason }: WatchAnswer): void {
    const watch = this.#creating.shift();
    if (!watch) return;
    if (cancelled) return this.#refused(watch, cancelReason);
    if (!this.group.created(header)) return;
    watch.createdAt = header.revision;
    watch.createdMs = this.clock.monotonic();
    // The listener may have cancelled the watch meanwhile.
    if (this.watches.has(watch.id)) watch.listener.created(header.revision);
  }

  #refused(watch: Watch, reason: string): void {
    const { member } = this.group;
    const error = notEtcds(member.failure(reason), [], member.host);
    if (error instanceof TokenExpiredError) return this.group.tokenExpired();
    // Another member may create it.
    if (error instanceof MemberRefusedError || error instanceof UnansweredError)
      return this.group.failed(error);
    if (!this.watches.delete(watch.id)) return;
    watch.over = true;
    watch.listener.refused(error as Error);
  }

  /** etcd cancelled the watch, not its listener. */
  #cancelled({ watchId, compacted }: WatchAnswer): void {
    const watch = this.watches.get(watchId);
    if (!watch) return;
    this.watches.delete(watchId);
    watch.over = true;
    watch.listener.interrupted(compacted ? "compacted" : "broken");
  }
}
