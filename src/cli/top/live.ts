import { emitKeypressEvents } from "node:readline";
import { EXIT } from "../command-line/exit.js";
import { Feed, type FeedSettings, type View as FeedView } from "./feed.js";
import { bodyHeight, layout, type Picture, type Size } from "./layout.js";
import { ENTER_SCREEN, LEAVE_SCREEN, Painter } from "./painter.js";
import { queueLength, type QueuePicture } from "./queue-lines.js";
import { Rates } from "./rates.js";
import { tableOf, type Now } from "./rows.js";
import { FIRST_VIEW, press, selectedOf, type Key, type Shown, type View } from "./view.js";

/** After a key, the next picture comes this early. */
const KEY_GAP_MS = 100;
/** Hold times and rates change without an event. */
const TICK_MS = 1000;
const SIGINT = 2;
/** The key of `Rates` for all names together: no name is empty. */
const ALL = "";
/** What a terminal has that does not tell its size. */
const USUAL: Size = { columns: 80, rows: 24 };

/** The table on a terminal, until a key or a signal ends it. The terminal is restored in any case. */
export async function runLive(settings: FeedSettings): Promise<number> {
  const { stdout } = settings.io;
  stdout.write(ENTER_SCREEN);
  try {
    const live = new Live(settings);
    try {
      return await live.feed.ended;
    } finally {
      live.stop();
    }
  } finally {
    stdout.write(LEAVE_SCREEN);
  }
}

class Live implements FeedView {
  readonly feed: Feed;
  #view: View = FIRST_VIEW;
  readonly #rates = new Rates();
  readonly #painter = new Painter();
  #names: readonly string[] = [];
  #tick: { cancel(): void };

  constructor(private readonly settings: FeedSettings) {
    const { io, clock } = settings;
    this.feed = new Feed(settings, this);
    this.#tick = clock.after(TICK_MS, () => this.#ticked());
    io.stdout.on("resize", this.#resized);
    if (io.stdin.isTTY === true) this.#listen();
    this.feed.request(0);
  }

  stop(): void {
    const { io } = this.settings;
    this.feed.stop();
    this.#tick.cancel();
    io.stdout.off("resize", this.#resized);
    io.stdin.off("keypress", this.#pressed);
    if (io.stdin.isTTY !== true) return;
    io.stdin.setRawMode?.(false);
    io.stdin.pause();
  }

  changed(names: ReadonlySet<string>): void {
    const { board } = this.feed;
    const at = this.settings.clock.monotonic();
    this.#rates.count(ALL, board.handOvers, at);
    for (const name of names) {
      const queue = board.queue(name);
      if (queue) this.#rates.count(name, queue.grants, at);
    }
  }

  contact(): void {
    // The next picture has it.
  }

  draw(): string {
    return this.#painter.paint(layout(this.#picture(), this.#size));
  }

  get #size(): Size {
    const { columns, rows } = this.settings.io.stdout;
    return { columns: positive(columns) ?? USUAL.columns, rows: positive(rows) ?? USUAL.rows };
  }

  #picture(): Picture {
    const { board, contact } = this.feed;
    const { clock, prefix } = this.settings;
    const now: Now = { monotonic: clock.monotonic(), date: clock.date() };
    const queues = [...board.names()].flatMap((name) => board.queue(name) ?? []);
    const { sort, filter } = this.#view;
    const table = tableOf(queues, { sort, filter, rates: this.#rates, now });
    this.#names = table.rows.map(({ queue }) => queue.name);
    return {
      ...{ prefix, view: this.#view, table, contact, now, revision: board.revision },
      selected: selectedOf(this.#view, this.#names),
      queue: this.#queue,
      rate: this.#rates.perSecond(ALL, now.monotonic),
    };
  }

  get #queue(): QueuePicture | undefined {
    const { open: name, scroll } = this.#view;
    const { board } = this.feed;
    if (name === undefined) return undefined;
    return { name, queue: board.queue(name), history: board.history(name), scroll };
  }

  get #shown(): Shown {
    const queue = this.#queue;
    return { names: this.#names, height: bodyHeight(this.#size), length: queue ? queueLength(queue) : 0 };
  }

  #listen(): void {
    const { stdin } = this.settings.io;
    emitKeypressEvents(stdin);
    stdin.setRawMode?.(true);
    stdin.on("keypress", this.#pressed).on("error", this.#inputBroken).resume();
  }

  readonly #inputBroken = (error: Error): void => this.feed.fail(error);

  readonly #pressed = (text: string | undefined, key: Key = {}): void =>
    this.feed.guard(() => {
      // In raw mode the terminal sends it as a key, not as a signal.
      if (key.ctrl && key.name === "c") return this.feed.end(EXIT.signal + SIGINT);
      const next = press(this.#view, { ...key, text }, this.#shown);
      if (next === "quit") return this.feed.end(EXIT.ok);
      this.#view = next;
      this.feed.request(KEY_GAP_MS);
    })();

  readonly #resized = (): void => {
    this.#painter.clear();
    this.feed.request(KEY_GAP_MS);
  };

  #ticked(): void {
    const { clock, intervalMs } = this.settings;
    this.#tick = clock.after(TICK_MS, () => this.#ticked());
    const isLive = (name: string): boolean => name === ALL || this.feed.board.queue(name) !== undefined;
    this.#rates.forget(clock.monotonic(), isLive);
    this.feed.request(intervalMs);
  }
}

const positive = (size: number | undefined): number | undefined =>
  size !== undefined && size > 0 ? size : undefined;
