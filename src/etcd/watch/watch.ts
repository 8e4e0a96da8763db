import { isUtf8 } from "node:buffer";
import type { EventKind, KeyValue, WatchEvent } from "../port.js";

/**
 * Why a watch ended. `broken`: its stream is gone; another watch can start from the revision after the last one that was
 * reported. `compacted`: etcd no longer has the revision to start from; only a read shows the present state.
 */
export type Interruption = "broken" | "compacted";

/** What a watch tells its owner. After `moved` or `refused` it is over. */
export interface WatchListener {
  /** The watch delivers what happens after `revision`. */
  created(revision: bigint): void;
  /** In the order of revisions; all events of one revision are told before anything else runs. */
  event(kv: KeyValue, kind: EventKind): void;
  /** Nothing more comes from this watch: start again with another one. */
  interrupted(why: Interruption): void;
  /** etcd does not allow this watch. */
  refused(error: Error): void;
}

export interface WatchTarget {
  readonly key: string | Buffer;
  readonly end?: string | undefined;
  readonly events: EventKind | "ALL";
  /** Default 0n: from now. */
  readonly startRevision?: bigint;
  /** A watch that is there already will do, if it tells every event from this revision on. */
  readonly reuseFrom?: bigint;
}

/** Has a watch until it is cancelled: a stream, or the hub while there is none. */
export interface WatchOwner {
  drop(watch: Watch): void;
  /** Whether the watch goes on for whoever needs it next; its owner hears nothing more. */
  keepForReuse(watch: Watch): boolean;
}

/** A Buffer that came from etcd keeps the whole message in which it came; text is smaller, and the same key. */
export const compactKey = (key: Buffer): string | Buffer => (isUtf8(key) ? key.toString() : Buffer.from(key));

/** A key as it is, whichever bytes it has: for maps. */
export const keyText = (key: string | Buffer): string => Buffer.from(key).toString("latin1");

const boundsOf = ({ key, end }: Watch): { readonly from: Buffer; readonly end: Buffer | undefined } => ({
  from: typeof key === "string" ? Buffer.from(key) : key,
  end: end === undefined ? undefined : Buffer.from(end),
});

/** One watch: `cancel` ends it, and its listener hears nothing more. A new owner may take over by setting `listener`. */
export class Watch {
  /** Its stream is gone, or etcd has ended it: nothing more comes. */
  over = false;
  /** It tells what happens after this revision; `undefined` until etcd has created it. */
  createdAt: bigint | undefined;
  /** Revision of the last event that it told. */
  lastEvent = 0n;
  /** Made once, for the first event: every event is compared with them, and most watches never see one. */
  #bounds: { readonly from: Buffer; readonly end: Buffer | undefined } | undefined;

  readonly key: string | Buffer;
  readonly end: string | undefined;
  readonly events: WatchTarget["events"];
  readonly startRevision: bigint;

  constructor(
    readonly id: number,
    { key, end, events, startRevision = 0n }: WatchTarget,
    public listener: WatchListener,
    public carrier: WatchOwner,
  ) {
    this.key = key;
    this.end = end;
    this.events = events;
    this.startRevision = startRevision;
  }

  get tellsDeletionsOfOneKey(): boolean {
    return this.events === "DELETE" && this.end === undefined;
  }

  cancel(): void {
    this.carrier.drop(this);
  }

  /** Instead of `cancel`, where the same key may soon be watched again. */
  keepForReuse(): void {
    if (!this.carrier.keepForReuse(this)) this.cancel();
  }

  /** Is it what was asked for? A lock may rest on one event. */
  wants({ kind, kv }: WatchEvent): boolean {
    if (this.events !== "ALL" && kind !== this.events) return false;
    const { from, end } = (this.#bounds ??= boundsOf(this));
    return end === undefined ? kv.key.equals(from) : kv.key.compare(from) >= 0 && kv.key.compare(end) < 0;
  }
}
