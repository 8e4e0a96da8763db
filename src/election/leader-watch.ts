import type { EtcdServices } from "../session/connection.js";
import type { EventKind, KeyValue, RangeAnswer } from "../etcd/port.js";
import type { Interruption, Watch, WatchListener } from "../etcd/watch/hub.js";
import { queueRange } from "../queue/lock-mode.js";
import { candidates, leaderOf, type Leader } from "./leader.js";
import type { Timer } from "../async/clock.js";

/** Interval of the reads that check whether the watch has missed an event. */
const SLOW_READ_MS = 30_000;
/** Every event older than a read arrives within this time after it: a dead connection is detected after 8 s. */
const LATEST_EVENT_MS = 10_000;

/** Receives what a `LeaderWatch` finds. */
export interface LeaderListener {
  /** Called after every revision that changed a candidate, even if the leader is the same. */
  leads(leader: Leader | undefined): void;
  failed(error: Error): void;
}

/**
 * Follows all candidates of one election, not only its leader. The next leader was in the queue before, so the deletion
 * that ends a leadership also determines the next one. Reads the candidates, then watches every event after that read.
 * When a watch breaks, the next one starts where it ended. Only if etcd has compacted that revision does a new read replace
 * the events in between.
 */
export class LeaderWatch implements WatchListener {
  /** In the order of their create revisions: a new key has the highest one. */
  #candidates = new Map<string, KeyValue>();
  #watch: Watch | undefined;
  /** Every event up to this revision has been applied and reported. */
  #complete = 0n;
  /** The revision whose events are being applied, until all of them have arrived. */
  #applying: bigint | undefined;
  /** The answer to a slow read, until every older event has arrived. */
  #snapshot: RangeAnswer | undefined;
  /** Runs only while etcd serves the watch. */
  #timer: Timer | undefined;
  readonly #stopped = new AbortController();

  constructor(
    private readonly services: EtcdServices,
    private readonly name: string,
    private readonly listener: LeaderListener,
  ) {
    this.#readFirst();
  }

  stop(): void {
    this.#stopped.abort();
    this.#endWatch();
    // An idle stream must not keep the process alive.
    this.services.watches.closeIdleStreams();
  }

  created(revision: bigint): void {
    // The member lags behind, or etcd was restored from a backup and would take long to reach the watched revision.
    if (revision < this.#complete) void this.#readSlowly();
    else this.#readLater();
  }

  event(kv: KeyValue, kind: EventKind): void {
    const { modRevision } = kv;
    if (modRevision !== this.#applying) this.#finish();
    if (modRevision <= this.#complete || !this.#allBefore(modRevision)) return;
    // All events of one revision are delivered before anything else runs.
    if (this.#applying === undefined) queueMicrotask(() => this.#finish());
    this.#applying = modRevision;
    const key = kv.key.toString("latin1");
    const before = this.#candidates.get(key);
    if (kind === "DELETE" || before?.createRevision !== kv.createRevision) this.#candidates.delete(key);
    if (kind === "PUT") this.#candidates.set(key, kv);
  }

  interrupted(why: Interruption): void {
    this.#endWatch();
    if (why === "compacted") this.#readFirst();
    else this.#follow();
  }

  refused(error: Error): void {
    this.#fail(error);
  }

  #readFirst(): void {
    void this.#read().then(
      (answer) => this.#begin(answer),
      (error: unknown) => this.#fail(error as Error),
    );
  }

  #read(): Promise<RangeAnswer> {
    const policy = { what: `observe the election "${this.name}"`, signal: this.#stopped.signal };
    return this.services.client.range(candidates(this.name), policy);
  }

  #begin({ header, kvs }: RangeAnswer): void {
    if (this.#stopped.signal.aborted) return;
    this.#endWatch();
    this.#candidates = new Map(kvs.map((kv) => [kv.key.toString("latin1"), kv]));
    this.#complete = header.revision;
    this.#follow();
    this.#leads();
  }

  #follow(): void {
    const target = { ...queueRange(this.name), events: "ALL", startRevision: this.#complete + 1n } as const;
    this.#watch = this.services.watches.watch(target, this);
  }

  #endWatch(): void {
    this.#watch?.cancel();
    this.#watch = undefined;
    this.#timer?.cancel();
    this.#snapshot = undefined;
    // A revision that was only partly delivered is delivered again as a whole.
    this.#applying = undefined;
  }

  #readLater(): void {
    const { clock } = this.services;
    this.#timer?.cancel();
    this.#timer = clock.after(SLOW_READ_MS * (0.75 + clock.random() / 2), () => void this.#readSlowly());
  }

  async #readSlowly(): Promise<void> {
    const [watch, complete] = [this.#watch, this.#complete];
    // If etcd rejects the read, the watch still reports.
    const answer = await this.#read().catch(() => undefined);
    if (this.#stopped.signal.aborted || watch !== this.#watch) return;
    if (!answer) return this.#readLater();
    const { revision } = answer.header;
    // A quorum is behind a revision reported before the read: etcd was restored from a backup.
    if (revision < complete) return this.#begin(answer);
    // Events newer than the read have arrived, and therefore all older ones.
    if (revision < this.#complete) return this.#readLater();
    this.#snapshot = answer;
    this.#timer = this.services.clock.after(LATEST_EVENT_MS, () => {
      // After this process was suspended, events may be waiting in the socket: timers run before it is read.
      this.#timer = this.services.clock.afterPendingEvents(() => this.#check(answer));
    });
  }

  /** Whether the watch has reported every event before this one, according to the last read. If not, restarts from that read. */
  #allBefore(modRevision: bigint): boolean {
    const snapshot = this.#snapshot;
    return !snapshot || modRevision <= snapshot.header.revision || this.#check(snapshot);
  }

  /** Compares the candidates with a read whose older events have all arrived. Restarts from the read if one was missed. */
  #check(snapshot: RangeAnswer): boolean {
    const { header, kvs } = snapshot;
    if (kvs.length !== this.#candidates.size || !kvs.every((kv) => this.#has(kv))) {
      this.#begin(snapshot);
      return false;
    }
    // Even after hours without events, the next watch starts at a revision that etcd has probably not compacted yet.
    this.#complete = header.revision;
    this.#snapshot = undefined;
    this.#readLater();
    return true;
  }

  #has({ key, modRevision }: KeyValue): boolean {
    return this.#candidates.get(key.toString("latin1"))?.modRevision === modRevision;
  }

  /** All events of a revision have arrived: reports the leader. */
  #finish(): void {
    if (this.#applying === undefined || this.#stopped.signal.aborted) return;
    this.#complete = this.#applying;
    this.#applying = undefined;
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
