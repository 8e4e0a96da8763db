import type { KeyValue, WatchEvent } from "./rpc.js";

/** What a watch tells its owner. After `moved` or `refused` it is over. */
export interface WatchListener {
  /** The watch delivers what happens after `revision`. */
  created(revision: bigint): void;
  event(kv: KeyValue): void;
  /** The stream is gone, and with it everything known about this watch: start again on the new one. */
  moved(): void;
  /** etcd does not allow this watch. */
  refused(error: Error): void;
}

export interface WatchTarget {
  readonly key: string | Buffer;
  readonly end?: string;
  readonly events: "PUT" | "DELETE";
  /** Default 0n: from now. */
  readonly startRevision?: bigint;
}

/** One watch: `cancel` ends it, and its listener hears nothing more. A new owner may take over by setting `listener`. */
export class Watch {
  /** Its stream is gone, or etcd has ended it: nothing more comes. */
  over = false;
  readonly #cancel: (watch: Watch) => void;

  constructor(
    readonly id: number,
    readonly target: WatchTarget,
    public listener: WatchListener,
    cancel: (watch: Watch) => void,
  ) {
    this.#cancel = cancel;
  }

  cancel(): void {
    this.#cancel(this);
  }

  /** Is it what was asked for? A lock may rest on one event. */
  wants({ kind, kv }: WatchEvent): boolean {
    const { key, end, events } = this.target;
    if (kind !== events) return false;
    const from = typeof key === "string" ? Buffer.from(key) : key;
    return end === undefined
      ? kv.key.equals(from)
      : kv.key.compare(from) >= 0 && kv.key.compare(Buffer.from(end)) < 0;
  }
}
