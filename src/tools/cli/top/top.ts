// A live table of all locks under a prefix, on a terminal; a snapshot or JSON lines without one.
// - The terminal is restored however the command ends: by a key, a signal, an error of etcd or a defect. Callbacks run in
//   `Feed.guard`, and what they throw ends the command in order.
// - `layout` makes lines of a picture, and `press` a view of a key: neither does anything else. Only lines that differ from
//   the screen are written, and nothing while the terminal has not taken what was written before.
// - A frame costs the visible lines and one sort of the names; a change costs what it changes: see `observe/board.ts`.
// - Every text of another client goes through `fit` or `cut`: escaped, and never wider than its column.
import { emitKeypressEvents } from "node:readline";
import type { SeenEntry } from "../../../lock/queue/seen-entry.js";
import { systemClock } from "../../../base/util/clock.js";
import type { Board, BoardQueue } from "../../../observe/board.js";
import type { Contact } from "../../../observe/contact.js";
import { command, parseDuration } from "../command.js";
import { EXIT, json, tableFor, usageError, contenderJson } from "../io.js";
import type { ContactJson, LocksJson } from "../json-types.js";
import { Feed, type FeedSettings, type FeedView } from "./feed.js";
import {
  FIRST_VIEW,
  heldCell,
  holderText,
  holdingIn,
  type Key,
  type Now,
  press,
  Rates,
  selectedOf,
  type Shown,
  shownHolder,
  tableOf,
  type View,
  waitingIn,
} from "./rows.js";
import {
  bodyHeight,
  ENTER_SCREEN,
  layout,
  LEAVE_SCREEN,
  Painter,
  type Picture,
  queueLength,
  type QueuePicture,
  type Size,
} from "./screen.js";

/** After a key, the next picture comes this early. */
const KEY_GAP_MS = 100;
/** Hold times and rates change without an event. */
const TICK_MS = 1000;
const SIGINT = 2;
/** The key of `Rates` for all names together: no name is empty. */
const ALL = "";
/** The size of a terminal that does not report it. */
const USUAL: Size = { columns: 80, rows: 24 };

/** The table on a terminal, until a key or a signal ends it. The terminal is restored in any case. */
async function runLive(settings: FeedSettings): Promise<number> {
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
  /** The dead ones that are to be seen, and of whom it is not known when their places are free. */
  #unknown: SeenEntry[] = [];
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
    this.#unknown = [];
    const lines = layout(this.#picture(), this.#size);
    void this.feed.askFree(this.#unknown).then((isNews) => isNews && this.feed.request(KEY_GAP_MS));
    return this.#painter.paint(lines);
  }

  readonly #freeIn = (entry: SeenEntry): number | undefined => {
    const ms = this.feed.freeInMs(entry);
    if (ms === undefined) this.#unknown.push(entry);
    return ms;
  };

  get #size(): Size {
    const { columns, rows } = this.settings.io.stdout;
    return { columns: positive(columns) ?? USUAL.columns, rows: positive(rows) ?? USUAL.rows };
  }

  #picture(): Picture {
    const { board, contact } = this.feed;
    const { clock, prefix } = this.settings;
    const now: Now = { monotonic: clock.monotonic(), date: clock.date() };
    const { sort, filter } = this.#view;
    const table = tableOf(board.queues(), { sort, filter, rates: this.#rates, now });
    this.#names = table.rows.map(({ queue }) => queue.name);
    return {
      prefix,
      view: this.#view,
      table,
      contact,
      now,
      revision: board.revision,
      selected: selectedOf(this.#view, this.#names),
      queue: this.#queue,
      freeIn: this.#freeIn,
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

/** So many holders of each lock: a lock may have thousands of readers. */
const MAX_HOLDERS = 10;

/** One object for each change, of the locks that changed since the one before. */
function writeJsonLines(settings: FeedSettings): Promise<number> {
  const lines = new JsonLines();
  const feed = new Feed(settings, lines);
  lines.board = feed.board;
  return feed.ended;
}

class JsonLines implements FeedView {
  board: Board | undefined;
  readonly #names = new Set<string>();
  readonly #contacts: Contact[] = [];
  #isFirst = true;

  changed(names: ReadonlySet<string>): void {
    for (const name of names) this.#names.add(name);
  }

  contact(contact: Contact): void {
    this.#contacts.push(contact);
  }

  draw(): string {
    const contacts = this.#contacts.splice(0).map(contactLine).join("");
    const { board } = this;
    if (!board || board.revision === 0n || (this.#names.size === 0 && !this.#isFirst)) return contacts;
    this.#isFirst = false;
    const line = changeLine(board, this.#names);
    this.#names.clear();
    return contacts + line;
  }
}

const contactLine = ({ state, error }: Contact): string =>
  json({
    event: "etcd",
    answers: state === "answers",
    ...(error && { message: error.message }),
  } satisfies ContactJson);

/** The locks of these names as they are now; `gone`: those that no client holds or waits for any more. */
function changeLine(board: Board, names: Iterable<string>): string {
  const all = [...names];
  const locks = all.flatMap((name) => board.queue(name) ?? []).map(lockOf);
  const gone = all.filter((name) => board.queue(name) === undefined);
  const revision = board.revision.toString();
  return json({ event: "locks", revision, locks, gone } satisfies LocksJson);
}

const lockOf = ({ name, kind, holders, waiterCount, grants }: BoardQueue): LocksJson["locks"][number] => ({
  name,
  kind,
  total: { holders: holders.length, waiters: waiterCount },
  grants,
  holders: holders.slice(0, MAX_HOLDERS).map((entry) => contenderJson(entry.contenderIn(name, "holding"))),
});

/** The locks as they are now, once. It ends with an error if etcd does not answer. */
function writeSnapshot(settings: FeedSettings, wantsJson: boolean): Promise<number> {
  const { io } = settings;
  let written = false;
  const feed: Feed = new Feed(settings, {
    changed: () => {
      if (written) return;
      written = true;
      const { board } = feed;
      // After an error, the feed ends with the code of that.
      const end = (text: string): void => void io.stdout.write(text, (error) => error ?? feed.end(EXIT.ok));
      if (wantsJson) return end(changeLine(board, board.names()));
      const holders = [...board.queues()].flatMap((queue) => shownHolder(queue) ?? []);
      void feed.askFree(holders).then(feed.guard(() => end(textOf(feed, settings))));
    },
    contact: ({ error }) => {
      if (error) feed.fail(error);
    },
    draw: () => "",
  });
  return feed.ended;
}

const ONCE_TITLES = ["NAME", "KIND", "HOLDER", "HOLDING", "WAITING", "HELD"];

function textOf(feed: Feed, { clock, io }: FeedSettings): string {
  const now = { monotonic: clock.monotonic(), date: clock.date() };
  const { rows } = tableOf(feed.board.queues(), { sort: "waiters", filter: "", rates: new Rates(), now });
  const cells = rows.map(({ queue, held }) => [
    ...[queue.name, queue.kind, holderText(queue, (entry) => feed.freeInMs(entry))],
    ...[String(holdingIn(queue)), String(waitingIn(queue)), heldCell({ queue, held })],
  ]);
  return tableFor(ONCE_TITLES, io.stdout).add(cells) || `${ONCE_TITLES.join("  ")}\n`;
}

/** About ten pictures a second are as many as anybody can see. */
const MIN_INTERVAL_MS = 100;
const DEFAULT_INTERVAL = "200ms";

export const top = command({
  name: "top",
  args: "[PREFIX]",
  positionals: [0, 1],
  endsWithOutput: true,
  summary: "watch all locks under a prefix: holders, waiters, hold times, rates",
  help: [
    "A live table of the locks and elections whose names start with PREFIX (default: all), on a terminal of 80 x 24 or more. Without a terminal, or with --once, it prints the current state once, sorted by waiters, and ends, with 69 if etcd does not answer within 2 s. With --json it runs until it gets a signal, unless --once is given.",
    "keys: up/down or k/j, PgUp/PgDn, Home/End select; Enter shows the queue of the selected lock; / filters names, Esc removes the filter; w, h and r sort by waiters, hold time and rate of grants; q or Ctrl-C ends.",
    "HOLDER: the owner of the first holder, or its value or key if the client wrote no owner; +2: two more hold. (free in 16 s): it is dead, and does not count as holding. (sticky): its session may keep the key, and take the lock again, without telling etcd; it counts as holding. HELD: since the grant. With <, it is an upper limit, from the join on, by the holder's clock: the lock was acquired before this program began, or is sticky. RATE: grants in a second, over about the last ten seconds; of a sticky lock, the keys.",
    "In the queue of a weighted semaphore, 3 of 10 is what the entry takes; in that of a mutex with priorities, its priority. A holder whose key was deleted while other keys of its lease stayed is released; otherwise it is released or lost, as both look the same in etcd. With more than 20,000 keys under PREFIX, it ends with 64. With --json, the first line has all locks, and each further line those that have changed.",
  ],
  flags: {
    once: { text: "print the current state and exit, also on a terminal" },
    interval: {
      value: "DURATION",
      text: `shortest time between two updates, 100ms or more; default ${DEFAULT_INTERVAL}`,
    },
  },
  run: ({ positionals: [prefix = ""], flags, io, json, signal, connect }) => {
    const interval = flags.interval ?? DEFAULT_INTERVAL;
    const intervalMs = parseDuration("interval", interval);
    if (intervalMs < MIN_INTERVAL_MS)
      throw usageError(`--interval must be 100ms or more, got ${JSON.stringify(interval)}`);
    const settings = { cluster: connect(), prefix, clock: systemClock, io, intervalMs, signal };
    if (flags.once) return writeSnapshot(settings, json);
    if (json) return writeJsonLines(settings);
    return io.stdout.isTTY === true ? runLive(settings) : writeSnapshot(settings, false);
  },
});
