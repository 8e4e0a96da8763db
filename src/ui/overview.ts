import type { Clock, Timer } from "../async/clock.js";
import type { EventStream } from "./event-stream.js";
import type { Rows } from "./rows.js";

/** Changes within this time arrive together. */
const FLUSH_MS = 100;

interface Reader {
  readonly stream: EventStream;
  /** Names whose latest row it has not got. A slow reader skips the rows in between. */
  readonly stale: Set<string>;
  problem: string | null;
}

/** Sends the rows to all streams of the overview: at first all of them, then what changes. */
export class Overview {
  readonly #readers = new Set<Reader>();
  #timer: Timer | undefined;

  constructor(
    private readonly rows: Rows,
    private readonly setting: { readonly clock: Clock; readonly prefix: string },
  ) {}

  add(stream: EventStream, release: boolean): void {
    const reader: Reader = { stream, stale: new Set(), problem: this.rows.problemText };
    this.#readers.add(reader);
    stream.onClose(() => this.#readers.delete(reader));
    const { prefix } = this.setting;
    const head = { now: this.#now(), prefix, release, problem: reader.problem };
    stream.send("full", withRows(head, this.#jsonOf(this.rows.names())));
  }

  /** Sends it soon. Undefined: no row has changed. */
  changed(name: string | undefined): void {
    if (name !== undefined) for (const { stale } of this.#readers) stale.add(name);
    if (this.#readers.size > 0) this.#timer ??= this.setting.clock.after(FLUSH_MS, () => this.#flush());
  }

  close(): void {
    this.#timer?.cancel();
  }

  #flush(): void {
    this.#timer = undefined;
    let isBehind = false;
    for (const reader of this.#readers) {
      if (reader.stream.ready) this.#send(reader);
      else isBehind = true;
    }
    if (isBehind) this.changed(undefined);
  }

  #send(reader: Reader): void {
    const { stream, stale } = reader;
    const problem = this.rows.problemText;
    if (stale.size === 0 && reader.problem === problem) return;
    const gone = [...stale].filter((name) => this.rows.json(name) === undefined);
    const head = { now: this.#now(), problem, gone };
    stream.send("change", withRows(head, this.#jsonOf(stale)));
    stale.clear();
    reader.problem = problem;
  }

  #jsonOf(names: Iterable<string>): string[] {
    return [...names].map((name) => this.rows.json(name)).filter((json) => json !== undefined);
  }

  #now(): number {
    return this.setting.clock.date().getTime();
  }
}

/** The rows are JSON already: one text of each row serves all streams. */
const withRows = (head: object, rows: readonly string[]): string =>
  `${JSON.stringify(head).slice(0, -1)},"rows":[${rows.join(",")}]}`;
