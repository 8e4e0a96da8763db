import type { ServerResponse } from "node:http";
import { type Contender, Election, inspect, once, type QueueState } from "../../index.js";
import { pause, type Timer } from "../../base/util/clock.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { countRuns, type RunCounts } from "../../recipes/once/run-counts.js";
import { encodeEvent, EventStream } from "./event-stream.js";
import { Overview, Rows } from "./overview.js";
import type { DetailMessage, Person } from "./protocol.js";
import { shardPicture } from "./shard-picture.js";
import { type BoardSetting, BoardSource, shortKey } from "./source.js";

/** The most that one page object has. Each open tab has one stream, or two while it shows a queue. */
const MAX_STREAMS = 64;
const CHECK_MS = 5000;

/** All streams of one page, and the one source that feeds them. */
export class Hub {
  readonly #rows: Rows;
  readonly #overview: Overview;
  readonly #details = new Map<string, Detail>();
  readonly #streams = new Set<EventStream>();
  readonly #source: BoardSource;
  #timer: Timer | undefined;
  #closed = false;

  constructor(private readonly setting: BoardSetting) {
    this.#rows = new Rows(setting.clock, (name) => {
      this.#overview.changed(name);
      if (name !== undefined) this.#details.get(name)?.changed();
    });
    this.#overview = new Overview(this.#rows, setting);
    // The source is opened for the first reader, and read by all.
    this.#source = inOwnContext(() => new BoardSource(setting, this.#rows));
  }

  /** Whether another stream would be one too many. */
  get full(): boolean {
    return this.#closed || this.#streams.size >= MAX_STREAMS;
  }

  /** @param release whether this viewer may release */
  openOverview(response: ServerResponse, release: boolean): void {
    this.#overview.add(this.#stream(response), release);
  }

  openDetail(response: ServerResponse, name: string): void {
    const reading = { ...this.setting, rows: this.#rows };
    const detail = this.#details.get(name) ?? new Detail(reading, name, () => this.#details.delete(name));
    this.#details.set(name, detail);
    detail.add(this.#stream(response));
  }

  close(): void {
    this.#closed = true;
    this.#source.close();
    this.#overview.close();
    this.#timer?.cancel();
    for (const stream of this.#streams) stream.close();
  }

  #stream(response: ServerResponse): EventStream {
    const stream = new EventStream(response, this.setting.clock);
    this.#streams.add(stream);
    stream.onClose(() => this.#streams.delete(stream));
    this.#check();
    return stream;
  }

  #check(): void {
    this.#timer ??= this.setting.clock.after(CHECK_MS, () => {
      this.#timer = undefined;
      for (const stream of this.#streams) stream.check();
      if (this.#streams.size > 0) this.#check();
    });
  }
}

/** Leases change without a revision: the TTL is read again and again while somebody looks. */
const EVERY_MS = 2000;
/** A read takes a request for each lease: larger queues are read only every `EVERY_MS`. */
const MAX_WOKEN = 20;
/** A busy queue is not read more often. */
const LEAST_MS = 250;
const LIMIT = 200;
/** A value has up to 64 KiB. */
const MAX_VALUE = 1000;

/** A queue, and the value of its leader. */
interface Found {
  readonly state: QueueState;
  readonly value: string | undefined;
}

/** They take up to five requests, and change without the queue. */
const RUNS_EVERY_MS = 10_000;

interface Reading extends BoardSetting {
  readonly rows: Rows;
}

/** One queue in full for the streams that show it: all of them share its reads. */
class Detail {
  readonly #streams = new Set<EventStream>();
  readonly #stop = new AbortController();
  #wake = new AbortController();
  /** All readers share it. */
  #last: Buffer | undefined;
  #contenders = 0;
  #runs: RunCounts | undefined;
  #runsAt = -Infinity;

  /** @param onIdle called when the last stream has ended. */
  constructor(
    private readonly reading: Reading,
    private readonly name: string,
    private readonly onIdle: () => void,
  ) {
    void this.#run();
  }

  add(stream: EventStream): void {
    this.#streams.add(stream);
    if (this.#last !== undefined) stream.sendEncoded(this.#last);
    stream.onClose(() => {
      this.#streams.delete(stream);
      if (this.#streams.size > 0) return;
      this.#stop.abort();
      this.onIdle();
    });
  }

  /** The queue has changed. */
  changed(): void {
    this.#wake.abort();
  }

  async #run(): Promise<void> {
    const { clock } = this.reading;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.#wake = new AbortController();
      // The queue doesn't wait for the counts: they are in the next message.
      void this.#countRuns();
      this.#publish(await this.#read());
      await pause(clock, LEAST_MS, signal);
      const wake = this.#contenders > MAX_WOKEN ? undefined : this.#wake.signal;
      await pause(clock, EVERY_MS - LEAST_MS, signal, wake);
    }
  }

  /** Never rejects. */
  async #read(): Promise<Found | string> {
    try {
      const { cluster } = this.reading;
      const { signal } = this.#stop;
      const state = await inspect(cluster, this.name, { limit: LIMIT, signal });
      const isLed = state.kind === "election" && state.holders.length > 0;
      const leader = isLed ? await new Election(cluster, this.name).leader({ signal }) : undefined;
      return { state, value: leader?.value.slice(0, MAX_VALUE) };
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** Never rejects: the counts may be old. */
  async #countRuns(): Promise<void> {
    const { clock, cluster } = this.reading;
    if (clock.monotonic() - this.#runsAt < RUNS_EVERY_MS) return;
    this.#runsAt = clock.monotonic();
    const { signal } = this.#stop;
    const counting = countRuns((limit) => once.history(cluster, this.name, { limit, signal }));
    this.#runs = await counting.catch(() => this.#runs);
  }

  #publish(found: Found | string): void {
    if (this.#stop.signal.aborted) return;
    if (typeof found !== "string") this.#contenders = found.state.holders.length + found.state.waiters.length;
    this.#last = encodeEvent("detail", JSON.stringify(this.#messageOf(found)));
    // A reader that is behind gets the next one.
    for (const stream of this.#streams) if (stream.ready) stream.sendEncoded(this.#last);
  }

  #messageOf(found: Found | string): DetailMessage {
    const { name } = this;
    const now = this.reading.clock.date().getTime();
    const { rows } = this.reading;
    const { countedSince } = rows;
    const [history, perMinute] = [rows.history(name), rows.perMinute(name)];
    const { state, value } = typeof found === "string" ? { state: EMPTY, value: undefined } : found;
    const kept = state.holders.some(({ sticky }) => sticky) ? this.reading.cluster.snapshot().kept : [];
    const isIdle = ({ key, revision }: Contender): boolean =>
      kept.some((each) => each.key === key && each.revision === revision);
    return {
      now,
      name,
      history,
      perMinute,
      countedSince,
      kind: state.kind,
      total: state.total,
      value: value ?? null,
      holders: state.holders.map((holder) => personOf(holder, isIdle(holder))),
      waiters: state.waiters.map((waiter) => personOf(waiter, false)),
      problem: typeof found === "string" ? found : null,
      shards: shardPicture(name, (each) => rows.history(each), now) ?? null,
      runs: this.#runs ?? null,
    };
  }
}

const EMPTY = { kind: "unknown", holders: [], waiters: [], total: { holders: 0, waiters: 0 } } as const;

const personOf = (contender: Contender, idle: boolean): Person => {
  const { key, state, owner, reason, sticky, value, weighted, priority } = contender;
  const { revision, leaseId, since, ttlRemainingMs } = contender;
  return {
    key: shortKey(key),
    owner: owner ?? value ?? null,
    reason: reason ?? null,
    weighted: weighted ?? null,
    priority: priority ?? null,
    revision: String(revision),
    lease: leaseId.toString(16),
    since: since?.getTime() ?? null,
    ttlMs: ttlRemainingMs ?? null,
    isDelay: state === "dead",
    sticky,
    idle,
  };
};
