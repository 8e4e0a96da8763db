import { isUtf8 } from "node:buffer";
import type { EventKind, WatchEvent } from "../port.js";

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
}

/** Holds a watch until it is cancelled: a stream, or the hub while there is no stream. */
export interface WatchOwner {
  drop(watch: Watch): void;
  /** Whether the watch continues, for reuse. If so, its listener is not called any more. */
  keepForReuse(watch: Watch): boolean;
}

/** A Buffer from etcd keeps its whole message in memory; the same key as text is smaller. */
export const compactKey = (key: Buffer): string | Buffer => (isUtf8(key) ? key.toString() : Buffer.from(key));

/** A key of any bytes as text without loss, for maps. */
export const keyText = (key: string | Buffer): string => Buffer.from(key).toString("latin1");

const bytesOf = (key: string | Buffer): Buffer => (typeof key === "string" ? Buffer.from(key) : key);

const boundsOf = ({ key, end }: Watch): { readonly from: Buffer; readonly end: Buffer | undefined } => ({
  from: bytesOf(key),
  end: end === undefined ? undefined : bytesOf(end),
});

/** The owner of a watch that was just made. */
const NOBODY: WatchOwner = { drop: () => undefined, keepForReuse: () => false };

/** One watch. After `cancel` its listener is not called any more. To take the watch over, set `listener`. */
export class Watch {
  /** Its stream is gone, or etcd has ended it: no more events arrive. */
  over = false;
  /** The watch reports what happens after this revision; `undefined` until etcd has created it. */
  createdAt: bigint | undefined;
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
    const { from, end } = (this.#bounds ??= boundsOf(this));
    return end === undefined ? kv.key.equals(from) : kv.key.compare(from) >= 0 && kv.key.compare(end) < 0;
  }
}
