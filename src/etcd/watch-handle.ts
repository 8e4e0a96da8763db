import type { EventKind, KeyValue, WatchEvent } from "./rpc.js";

/** What a watch tells its owner. After `moved` or `refused` it is over. */
export interface WatchListener {
  /** The watch delivers what happens after `revision`. */
  created(revision: bigint): void;
  /** In the order of revisions; all events of one revision are told before anything else runs. */
  event(kv: KeyValue, kind: EventKind): void;
  /** The stream is gone, and with it everything known about this watch: start again on the new one. */
  moved(): void;
  /** etcd does not allow this watch. */
  refused(error: Error): void;
}

export interface WatchTarget {
  readonly key: string | Buffer;
  readonly end?: string;
  readonly events: EventKind | "ALL";
  /** Default 0n: from now. */
  readonly startRevision?: bigint;
}

/** Has a watch until it is cancelled: a stream, or the hub while there is none. */
export interface WatchCarrier {
  drop(watch: Watch): void;
}

/** One watch: `cancel` ends it, and its listener hears nothing more. A new owner may take over by setting `listener`. */
export class Watch {
  /** Its stream is gone, or etcd has ended it: nothing more comes. */
  over = false;
  readonly #from: Buffer;
  readonly #end: Buffer | undefined;

  constructor(
    readonly id: number,
    readonly target: WatchTarget,
    public listener: WatchListener,
    public carrier: WatchCarrier,
  ) {
    const { key, end } = target;
    // Once and for all: every event is compared with them.
    this.#from = typeof key === "string" ? Buffer.from(key) : key;
    this.#end = end === undefined ? undefined : Buffer.from(end);
  }

  cancel(): void {
    this.carrier.drop(this);
  }

  /** Is it what was asked for? A lock may rest on one event. */
  wants({ kind, kv }: WatchEvent): boolean {
    const { events } = this.target;
    if (events !== "ALL" && kind !== events) return false;
    return this.#end === undefined
      ? kv.key.equals(this.#from)
      : kv.key.compare(this.#from) >= 0 && kv.key.compare(this.#end) < 0;
  }
}
