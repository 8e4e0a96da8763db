import type { Connection } from "./connection.js";
import type { EventKind, KeyValue, RangeAnswer } from "./etcd/rpc.js";
import type { Watch, WatchListener } from "./etcd/watch.js";
import { queueRange } from "./kind.js";
import { candidates, leaderOf, type Leader } from "./leader.js";

/** What following an election comes to. */
export interface LeaderListener {
  /** After every revision that changed a candidate, also where the leader is the same. */
  leads(leader: Leader | undefined): void;
  failed(error: Error): void;
}

/**
 * Follows the candidates of one election, not only its leader: who comes after him was there before, so the next one is
 * known from the very deletion that ends the last one. Reads them, then watches all that happens after that read; when
 * the watch breaks, or etcd has compacted what it had to tell, reads anew.
 */
export class LeaderWatch implements WatchListener {
  /** In the order of their create revisions: that of a new key is above all others. */
  #candidates = new Map<string, KeyValue>();
  #watch: Watch | undefined;
  /** The revision whose events are being told, until all of them have been. */
  #telling: bigint | undefined;
  readonly #stopped = new AbortController();

  constructor(
    private readonly connection: Connection,
    private readonly name: string,
    private readonly listener: LeaderListener,
  ) {
    this.#read();
  }

  stop(): void {
    this.#stopped.abort();
    this.#watch?.cancel();
    // An idle stream must not keep the process alive.
    this.connection.watches.rest();
  }

  created(): void {}

  event(kv: KeyValue, kind: EventKind): void {
    if (kv.modRevision !== this.#telling) this.#tell();
    // Those of one revision come in one go.
    if (this.#telling === undefined) queueMicrotask(() => this.#tell());
    this.#telling = kv.modRevision;
    const key = kv.key.toString("latin1");
    const before = this.#candidates.get(key);
    if (kind === "DELETE" || before?.createRevision !== kv.createRevision) this.#candidates.delete(key);
    if (kind === "PUT") this.#candidates.set(key, kv);
  }

  moved(): void {
    this.#tell();
    this.#read();
  }

  refused(error: Error): void {
    this.#fail(error);
  }

  #read(): void {
    const { members } = this.connection;
    const policy = { what: `observe the election "${this.name}"`, signal: this.#stopped.signal };
    void members.range(candidates(this.name), policy).then(
      (answer) => this.#begin(answer),
      (error: unknown) => this.#fail(error as Error),
    );
  }

  #begin({ header, kvs }: RangeAnswer): void {
    if (this.#stopped.signal.aborted) return;
    this.#candidates = new Map(kvs.map((kv) => [kv.key.toString("latin1"), kv]));
    const target = { ...queueRange(this.name), events: "ALL", startRevision: header.revision + 1n } as const;
    this.#watch = this.connection.watches.watch(target, this);
    this.#leads();
  }

  /** All events of a revision have come. */
  #tell(): void {
    if (this.#telling === undefined || this.#stopped.signal.aborted) return;
    this.#telling = undefined;
    this.#leads();
  }

  #leads(): void {
    const [oldest] = this.#candidates.values();
    this.listener.leads(leaderOf(this.name, oldest));
  }

  #fail(error: Error): void {
    if (!this.#stopped.signal.aborted) this.listener.failed(error);
  }
}
