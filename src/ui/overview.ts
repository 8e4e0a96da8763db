import type { Clock, Timer } from "../async/clock.js";
import { ChangeLog } from "./change-log.js";
import type { EventStream } from "./event-stream.js";
import type { Rows } from "./rows.js";

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
    private readonly setting: { readonly clock: Clock; readonly prefix: string },
  ) {}

  add(stream: EventStream, release: boolean): void {
    const never = { begin: 0, got: 0, goal: 0, problem: undefined, next: undefined };
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

  #isBehind({ got, problem }: Reader): boolean {
    return got < this.#log.version || problem !== this.rows.problemText;
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
    const { prefix, clock } = this.setting;
    const { stream, release, goal } = reader;
    const isFirst = reader.problem === undefined;
    const { rows, gone, got } = this.#pageFor(reader);
    const problem = this.rows.problemText;
    Object.assign(reader, { got, problem });
    const head = { now: clock.date().getTime(), problem, more: got < goal };
    if (isFirst) stream.send("full", withRows({ ...head, prefix, release }, rows));
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
