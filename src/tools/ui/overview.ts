import type { Clock, Timer } from "../../base/util/clock.js";
import type { EventStream } from "./event-stream.js";
import type { HoldEnd, Past, PerMinute, Row } from "./protocol.js";
import type { Ending, QueueView } from "./source.js";

/** The holds of one queue that are kept: the page draws as many. */
const MAX_HOLDS = 60;

type Hold = { -readonly [K in keyof Past]: Past[K] };

const MINUTE_MS = 60_000;
const MINUTES = 60;

/** Hand-overs by the minute, of the last hour. */
class HandOvers {
  readonly #counts = new Map<number, number>();
  /** All that the board has counted. */
  #total = 0;

  get total(): number {
    return this.#total;
  }

  /** @param nowMs time of day */
  count(total: number, nowMs: number): void {
    // The board has forgotten the name in between, or is another one, and counts from 0 again.
    const more = total < this.#total ? total : total - this.#total;
    this.#total = total;
    if (more === 0) return;
    const minute = Math.floor(nowMs / MINUTE_MS);
    this.#counts.set(minute, (this.#counts.get(minute) ?? 0) + more);
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MINUTES && oldest !== undefined) this.#counts.delete(oldest);
  }

  perMinute(nowMs: number): PerMinute {
    const first = Math.floor(nowMs / MINUTE_MS) - MINUTES + 1;
    return Array.from({ length: MINUTES }, (_, n) => this.#counts.get(first + n) ?? 0);
  }
}

/** The holds of one queue that the server has seen. Its size is bounded. */
class History {
  readonly #holds: Hold[] = [];
  /** Endings that have arrived before the change that shows them. */
  readonly #announced = new Map<string, Ending["end"]>();
  readonly handOvers = new HandOvers();
  losses = 0;

  /** @param wasThere the first holders held before the server looked. */
  constructor(private wasThere: boolean) {}

  /** The holds, the oldest first. */
  get holds(): readonly Past[] {
    return this.#holds;
  }

  /** When the holder of this revision got the lock, as far as it was seen. */
  sinceOf(revision: bigint): number | undefined {
    return this.#holds.findLast((hold) => hold.revision === String(revision))?.from;
  }

  /** The present holders. @param nowMs time of day */
  update(holders: QueueView["holders"], nowMs: number): void {
    const alive = holders.filter(({ isDelay }) => !isDelay);
    const present = new Map(alive.map((holder) => [String(holder.revision), holder]));
    for (const hold of this.#holds) {
      if (hold.to === null && !present.delete(hold.revision)) this.#end(hold, nowMs);
    }
    for (const [revision, { owner, value, key, since }] of present) {
      const joined = this.wasThere ? since?.getTime() : undefined;
      this.#holds.push({
        holder: owner ?? value ?? key,
        revision,
        to: null,
        end: null,
        from: Math.min(joined ?? nowMs, nowMs),
        fromIsJoin: joined !== undefined,
      });
    }
    this.wasThere = false;
    this.#holds.splice(0, this.#holds.length - MAX_HOLDS);
  }

  /** How a hold has ended. */
  ended(revision: bigint, end: Ending["end"]): void {
    const hold = this.#holds.findLast((each) => each.revision === String(revision));
    if (hold === undefined || hold.to === null) this.#announced.set(String(revision), end);
    else if (hold.end === "unknown") this.#judge(hold, end);
    const [oldest] = this.#announced.keys();
    if (this.#announced.size > MAX_HOLDS && oldest !== undefined) this.#announced.delete(oldest);
  }

  #end(hold: Hold, nowMs: number): void {
    hold.to = nowMs;
    this.#judge(hold, this.#announced.get(hold.revision) ?? "unknown");
    this.#announced.delete(hold.revision);
  }

  #judge(hold: Hold, end: HoldEnd): void {
    hold.end = end;
    if (end === "lease ended") this.losses++;
  }
}

/** Free queues that are still shown, with their history. */
const MAX_FREE = 1000;
const FREE_MS = 300_000;

interface Kept {
  row: Row;
  readonly history: History;
  /** As JSON text, for all streams; undefined: to be made. */
  json: string | undefined;
  /** Monotonic milliseconds; undefined: it is not free. */
  freeSince: number | undefined;
}

/** The rows of the overview, and the histories of their queues. */
export class Rows {
  readonly #kept = new Map<string, Kept>();
  /** The free ones, in the order in which they became free. */
  readonly #free = new Set<string>();
  /** Until the first state has come: nobody saw these holds begin. */
  #isFirst = true;
  #problem: string | null = "connecting to etcd";
  /** When etcd has answered last, in monotonic milliseconds; undefined: never. */
  answered: () => number | undefined = () => undefined;
  /** Since when hand-overs are counted: milliseconds since 1970. */
  readonly countedSince: number;
  /** The hand-overs of all names. */
  readonly #handOvers = new HandOvers();

  /** @param changed gets the name of each queue that has changed; undefined: only `problem` or `handOvers` has. */
  constructor(
    private readonly clock: Clock,
    private readonly onChange: (name: string | undefined) => void,
  ) {
    this.countedSince = clock.date().getTime();
  }

  /** The time of day of etcd's last answer: what is shown is as old as that. */
  get answeredAt(): number {
    const now = this.clock.date().getTime();
    const at = this.answered();
    return at === undefined ? this.countedSince : now - Math.round(this.clock.monotonic() - at);
  }

  get problemText(): string | null {
    return this.#problem;
  }

  /** All that the board has counted. */
  get handOvers(): number {
    return this.#handOvers.total;
  }

  has(name: string): boolean {
    return this.#kept.has(name);
  }

  /** The names that are shown as in use. */
  *inUse(): Iterable<string> {
    for (const [name, { freeSince }] of this.#kept) if (freeSince === undefined) yield name;
  }

  /** The row as JSON; undefined: it is gone. */
  json(name: string): string | undefined {
    const kept = this.#kept.get(name);
    if (kept) kept.json ??= JSON.stringify(kept.row);
    return kept?.json;
  }

  history(name: string): readonly Past[] {
    return this.#kept.get(name)?.history.holds ?? [];
  }

  /** The hand-overs of one name, or of all. */
  perMinute(name?: string): PerMinute {
    const handOvers = name === undefined ? this.#handOvers : this.#kept.get(name)?.history.handOvers;
    return handOvers?.perMinute(this.clock.date().getTime()) ?? [];
  }

  /** @param handOvers all that the board has counted, of all names @param more of the same picture follows */
  changed(views: readonly QueueView[], handOvers: number, more = false): void {
    // Nothing else is known of a queue that came and went between two looks.
    if (handOvers !== this.#handOvers.total) this.onChange(undefined);
    this.#handOvers.count(handOvers, this.clock.date().getTime());
    for (const view of views) this.#put(view);
    this.#isFirst &&= more;
    this.#forget();
  }

  /** Before or after the change that shows it. */
  ended({ name, revision, end }: Ending): void {
    const kept = this.#kept.get(name);
    if (!kept) return;
    kept.history.ended(revision, end);
    kept.row = { ...kept.row, losses: kept.history.losses };
    kept.json = undefined;
    this.onChange(name);
  }

  /** Why the rows may be old; undefined: all is well again. */
  problem(text: string | undefined): void {
    if (this.#problem === (text ?? null)) return;
    this.#problem = text ?? null;
    this.onChange(undefined);
  }

  #put(view: QueueView): void {
    const { name, holders, waiters, grants } = view;
    const before = this.#kept.get(name);
    const free = holders.length === 0 && waiters === 0;
    if (free && before === undefined) return;
    const history = before?.history ?? new History(this.#isFirst);
    const nowMs = this.clock.date().getTime();
    history.update(holders, nowMs);
    if (grants !== undefined) history.handOvers.count(grants, nowMs);
    // An empty queue shows no kind.
    const kind = free ? (before?.row.kind ?? view.kind) : view.kind;
    this.#free.delete(name);
    if (free) this.#free.add(name);
    const freeSince = free ? this.clock.monotonic() : undefined;
    this.#kept.set(name, { row: rowOf({ ...view, kind }, history), history, json: undefined, freeSince });
    this.onChange(name);
  }

  /** Free rows beyond the limits. */
  #forget(): void {
    const before = this.clock.monotonic() - FREE_MS;
    for (const name of this.#free) {
      const { freeSince = 0 } = this.#kept.get(name) ?? {};
      if (this.#free.size <= MAX_FREE && freeSince > before) break;
      this.#free.delete(name);
      this.#kept.delete(name);
      this.onChange(name);
    }
  }
}

function rowOf({ name, kind, holders, waiters }: QueueView, history: History): Row {
  const [first] = holders;
  const isDelay = first?.isDelay ?? false;
  return {
    name,
    kind,
    holders: holders.length,
    waiters,
    losses: history.losses,
    isDelay,
    ...(first?.sticky && { sticky: true }),
    holder: first ? (first.owner ?? first.value ?? first.key) : null,
    since: (first && (history.sinceOf(first.revision) ?? first.since?.getTime())) ?? null,
  };
}

/** Names that are gone, for readers that may still show them. One that is further behind begins anew. */
const MAX_GONE = 10_000;
/** Void entries are dropped when they are so many more than the others. */
const LEAST_VOID = 1000;

/** The change of a row. It is void when the row has changed again. */
interface Change {
  readonly name: string;
  readonly version: number;
}

/**
 * Which rows have changed, in the order of their latest changes. All readers share it: each one has only the version of
 * the last change that it has got, however many rows it still lacks.
 */
class ChangeLog {
  /** The number of the last change. */
  version = 0;
  /** A reader that has not got all changes up to this one may show rows that are gone. */
  forgotten = 0;
  /** In ascending order. */
  #changes: Change[] = [];
  readonly #latest = new Map<string, number>();
  /** The first one was gone first. */
  readonly #gone = new Set<string>();

  add(name: string, isGone: boolean): void {
    this.#latest.set(name, ++this.version);
    this.#changes.push({ name, version: this.version });
    this.#gone.delete(name);
    if (isGone) this.#gone.add(name);
    this.#forget();
    if (this.#changes.length > 2 * this.#latest.size + LEAST_VOID)
      this.#changes = this.#changes.filter((change) => this.#isLatest(change));
  }

  /** The latest changes of all rows from after `version` up to `last`. */
  *between(version: number, last: number): Iterable<Change> {
    const first = this.#changes.findLastIndex((change) => change.version <= version) + 1;
    for (let n = first; n < this.#changes.length; n++) {
      const change = this.#changes[n];
      if (change === undefined || change.version > last) return;
      if (this.#isLatest(change)) yield change;
    }
  }

  #isLatest({ name, version }: Change): boolean {
    return this.#latest.get(name) === version;
  }

  #forget(): void {
    const [oldest] = this.#gone;
    if (this.#gone.size <= MAX_GONE || oldest === undefined) return;
    this.forgotten = Math.max(this.forgotten, this.#latest.get(oldest) ?? 0);
    this.#latest.delete(oldest);
    this.#gone.delete(oldest);
  }
}

/** Changes within this time arrive together. */
const FLUSH_MS = 100;
/** In UTF-16 code units, or one row more. It is all that a reader that takes nothing keeps in memory. */
const MAX_PAGE = 65_536;

interface Reader {
  readonly stream: EventStream;
  readonly release: boolean;
  /** The last change of its first rows: what was gone before, it has never shown. */
  begin: number;
  /** The last change that it has got. A slow reader skips the states in between. */
  got: number;
  /** The last change of the pages that it is getting now. */
  goal: number;
  /** `undefined`: it has got nothing. */
  problem: string | null | undefined;
  handOvers: number;
  next: Timer | undefined;
}

/** Rows as JSON, and names that are gone. */
interface Page {
  readonly rows: readonly string[];
  readonly gone: readonly string[];
  readonly got: number;
}

/**
 * Sends the rows to all streams of the overview: at first all of them, then what changes. What takes more than a page is sent
 * page by page, each one when the reader has taken the one before.
 */
export class Overview {
  readonly #readers = new Set<Reader>();
  readonly #log = new ChangeLog();
  #timer: Timer | undefined;

  constructor(
    private readonly rows: Rows,
    private readonly setting: {
      readonly clock: Clock;
      readonly prefix: string;
      readonly cluster: { readonly hosts: readonly string[] };
    },
  ) {}

  add(stream: EventStream, release: boolean): void {
    const never = { begin: 0, got: 0, goal: 0, problem: undefined, handOvers: 0, next: undefined };
    const reader: Reader = { stream, release, ...never };
    this.#readers.add(reader);
    stream.onClose(() => {
      this.#readers.delete(reader);
      reader.next?.cancel();
    });
    stream.onDrain(() => this.#goOn(reader));
    this.#begin(reader);
    this.#send(reader);
  }

  /** Sends it soon. Undefined: no row has changed. */
  changed(name: string | undefined): void {
    if (name !== undefined) this.#log.add(name, !this.rows.has(name));
    if (this.#readers.size > 0) this.#timer ??= this.setting.clock.after(FLUSH_MS, () => this.#flush());
  }

  close(): void {
    this.#timer?.cancel();
  }

  #flush(): void {
    this.#timer = undefined;
    for (const reader of this.#readers) {
      if (reader.got < reader.goal || !reader.stream.ready || !this.#isBehind(reader)) continue;
      reader.goal = this.#log.version;
      this.#send(reader);
    }
  }

  #isBehind({ got, problem, handOvers }: Reader): boolean {
    const { problemText, handOvers: latest } = this.rows;
    return got < this.#log.version || problem !== problemText || handOvers !== latest;
  }

  /** The reader has taken what it was sent. */
  #goOn(reader: Reader): void {
    // One that takes everything at once must not keep the process from what else it does, such as renewing its locks.
    reader.next ??= this.setting.clock.afterPendingEvents(() => {
      reader.next = undefined;
      if (reader.got < reader.goal) this.#send(reader);
      else if (this.#isBehind(reader)) this.changed(undefined);
    });
  }

  #begin(reader: Reader): void {
    reader.begin = reader.goal = this.#log.version;
    reader.got = 0;
    reader.problem = undefined;
  }

  /** One page. */
  #send(reader: Reader): void {
    if (!reader.stream.ready) return;
    if (this.#log.forgotten > Math.max(reader.got, reader.begin)) this.#begin(reader);
    const { prefix, clock, cluster } = this.setting;
    const { stream, release, goal } = reader;
    const isFirst = reader.problem === undefined;
    const { rows, gone, got } = this.#pageFor(reader);
    const problem = this.rows.problemText;
    Object.assign(reader, { got, problem, handOvers: this.rows.handOvers });
    const perMinute = this.rows.perMinute();
    const { answeredAt, countedSince } = this.rows;
    const now = clock.date().getTime();
    const head = { now, problem, answeredAt, countedSince, more: got < goal, perMinute };
    if (isFirst) stream.send("full", withRows({ ...head, prefix, hosts: cluster.hosts, release }, rows));
    else stream.send("change", withRows({ ...head, gone }, rows));
    if (stream.ready) this.#goOn(reader);
  }

  #pageFor({ begin, got, goal }: Reader): Page {
    const page = { rows: [] as string[], gone: [] as string[] };
    let length = 0;
    for (const { name, version } of this.#log.between(got, goal)) {
      if (length >= MAX_PAGE) return { ...page, got: version - 1 };
      const json = this.rows.json(name);
      if (json !== undefined) page.rows.push(json);
      else if (version > begin) page.gone.push(name);
      else continue;
      length += (json ?? name).length;
    }
    return { ...page, got: goal };
  }
}

/** The rows are JSON already: one text of each row serves all streams. */
const withRows = (head: object, rows: readonly string[]): string =>
  `${JSON.stringify(head).slice(0, -1)},"rows":[${rows.join(",")}]}`;
