import type { SeenEntry } from "../../../lock/queue/seen-entry.js";
import type { BoardEvent, BoardQueue } from "../../../observe/board.js";
import type { Contact } from "../../../observe/contact.js";
import { freeText, holdingText, permitsText } from "../../../contender.js";
import { formatDuration } from "../command.js";
import { cut, fit, withReason } from "../io.js";
import {
  type FreeIn,
  heldBy,
  heldCell,
  heldText,
  holderText,
  holdingIn,
  labelOf,
  type Now,
  type Row,
  type SortKey,
  type Table,
  type View,
  waitingIn,
} from "./rows.js";

/** The queue of one name. */
export interface QueuePicture {
  readonly name: string;
  /** Undefined: nobody is in it now. */
  readonly queue: BoardQueue | undefined;
  readonly history: readonly BoardEvent[];
  /** The first line that is shown. */
  readonly scroll: number;
}

/** What a text depends on besides the queues. */
interface Scene {
  readonly now: Now;
  readonly freeIn: FreeIn;
}

/** How many lines a queue has, besides its title. */
export const queueLength = ({ queue, history }: QueuePicture): number =>
  (queue ? queue.holders.length + queue.waiterCount : 1) + (history.length > 0 ? history.length + 1 : 0);

/** The title, and the lines that there is room for. Only those are made: a queue may have thousands. */
function queueLines(picture: QueuePicture, scene: Scene, size: Size): readonly Line[] {
  const { name, queue, scroll } = picture;
  const numbers = queue ? numbersText(queue) : "free";
  const room = Math.max(8, size.columns - numbers.length - 2);
  const title: Line = { text: `${cut(name, room)}  ${numbers}`, style: "bold" };
  const makers = [...entryMakers(picture, scene, size), ...eventMakers(picture, scene.now)];
  return [title, ...makers.slice(scroll, scroll + size.rows).map((make) => make())];
}

function numbersText(queue: BoardQueue): string {
  const permits = permitsText(queue.holders, queue.holderCount);
  const holding = `${holdingText(queue.holders)}${permits === undefined ? "" : ` ${permits}`}`;
  const dead = queue.deadCount > 0 ? `, ${queue.deadCount} dead` : "";
  return `${queue.kind}, ${holdingIn(queue)} ${holding}, ${waitingIn(queue)} waiting${dead}`;
}

type Maker = () => Line;

function entryMakers({ queue }: QueuePicture, { now, freeIn }: Scene, size: Size): readonly Maker[] {
  if (queue === undefined) return [() => ({ text: "  no holder, no waiter" })];
  const { holders, waiters } = queue;
  return [
    ...holders.map((entry): Maker => () => {
      const state =
        deadText(entry, freeIn) ??
        `${entry.sticky ? "sticky" : "holds"} ${heldText(heldBy(entry, queue, now))}`;
      return { text: entryText(state, entry, size.columns) };
    }),
    ...waiters.map((entry, n): Maker => () => ({
      text: entryText(`${n + 1}. ${deadText(entry, freeIn) ?? waitText(entry, now)}`, entry, size.columns),
    })),
  ];
}

const deadText = (entry: SeenEntry, freeIn: FreeIn): string | undefined =>
  entry.isDelay ? `dead, ${freeText(freeIn(entry))}` : undefined;

const waitText = ({ since }: SeenEntry, { date }: Now): string =>
  since === undefined ? "waits" : `waits ${formatDuration(Math.max(0, date.getTime() - since.getTime()))}`;

/** How much of a weighted semaphore it takes, or with which priority it waits. */
function asksText({ weighted, priority }: SeenEntry): string {
  if (weighted) return `${weighted.weight} of ${weighted.permits}  `;
  return priority ? `priority ${priority.level}  ` : "";
}

function entryText(state: string, entry: SeenEntry, columns: number): string {
  const rest = Math.max(16, columns - 46);
  const lease = entry.leaseId === 0n ? "no lease" : `lease ${entry.leaseId.toString(16)}`;
  const who = withReason(labelOf(entry), entry);
  return `  ${fit(state, 18)}  ${fit(`${asksText(entry)}${who}`, rest)}  ${cut(lease, 22)}`;
}

/** The latest first. */
function eventMakers({ history }: QueuePicture, now: Now): readonly Maker[] {
  if (history.length === 0) return [];
  const seen = history.toReversed().map((event): Maker => () => ({ text: eventText(event, now) }));
  return [() => ({ text: "recent events:", style: "bold" }), ...seen];
}

function eventText({ kind, entry, at, together }: BoardEvent, now: Now): string {
  const ago = formatDuration(Math.max(0, now.monotonic - at));
  const what = kind === "ended" ? "released or lost" : kind;
  const keys = kind === "ended" && together !== undefined && together > 1;
  return `  ${fit(`${ago} ago`, 12)}  ${fit(what, 17)}  ${labelOf(entry)}${keys ? ` (with ${together} keys of its lease)` : ""}`;
}

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** A line of the screen; `style` is that of all of it. */
interface Line {
  readonly text: string;
  readonly style?: "bold" | "dim" | "inverse" | "alert";
}

/** All that a screen is made of. */
export interface Picture extends Scene {
  readonly prefix: string;
  readonly view: View;
  readonly table: Table;
  /** The selected name. */
  readonly selected: string | undefined;
  /** The queue that is shown instead of the table. */
  readonly queue: QueuePicture | undefined;
  readonly contact: Contact;
  /** Grants in a second, of all names. */
  readonly rate: number;
  readonly revision: bigint;
}

/** Title, state, columns, and the keys at the end. */
const FRAME_LINES = 4;

/** How many rows of the table, or lines of the queue, there is room for. */
export const bodyHeight = ({ rows }: Size): number => Math.max(1, rows - FRAME_LINES);

/** The whole screen, one line for each row of the terminal. */
export function layout(picture: Picture, size: Size): readonly Line[] {
  const height = bodyHeight(size);
  const { queue } = picture;
  const body = queue ? queueLines(queue, picture, size) : tableLines(picture, size);
  const lines = [titleLine(picture), stateLine(picture), ...body.slice(0, height + 1)];
  while (lines.length < size.rows - 1) lines.push({ text: "" });
  lines.push({ text: queue ? QUEUE_KEYS : TABLE_KEYS, style: "dim" });
  return lines.slice(0, size.rows).map(({ text, style }) => ({
    text: style === "inverse" || style === "alert" ? fit(text, size.columns) : cut(text, size.columns),
    ...(style && { style }),
  }));
}

const TABLE_KEYS = "up/down select  Enter queue  / filter  sort: w waiters, h held, r rate  q quit";
const QUEUE_KEYS = "up/down scroll  Enter or Esc back to the table  q quit";

function titleLine({ prefix, table, rate }: Picture): Line {
  const { locks, holding, waiting } = table;
  const where = prefix === "" ? "all names" : `${prefix}*`;
  return {
    text: `leasehold top  ${where}  ${locks} ${locks === 1 ? "lock" : "locks"}  ${holding} holding  ${waiting} waiting  ${rateText(rate)} grants`,
    style: "bold",
  };
}

function stateLine({ contact, revision, view, now }: Picture): Line {
  const { state, since, error } = contact;
  if (state === "silent") {
    const ago = formatDuration(Math.floor((now.monotonic - since) / 1000) * 1000);
    const old = revision === 0n ? "nothing was read yet" : `this is revision ${revision}`;
    const forHow = ago === "0 ms" ? "" : ` for ${ago}`;
    return { text: `ETCD DOES NOT ANSWER${forHow}; ${old}. ${error?.message ?? ""}`, style: "alert" };
  }
  if (view.isTyping) return { text: `filter: ${view.filter}_` };
  if (revision === 0n) return { text: "reading" };
  const filter = view.filter === "" ? "" : `  filter: ${view.filter} (Esc removes it)`;
  return { text: `revision ${revision}${filter}` };
}

const NUMBERS = { kind: 9, waiting: 7, held: 8, rate: 8 };
const GAPS = 5 * 2;

function tableLines({ table, view, selected, freeIn }: Picture, size: Size): readonly Line[] {
  const { rows } = table;
  const height = bodyHeight(size);
  const at = Math.max(
    0,
    rows.findIndex(({ queue }) => queue.name === selected),
  );
  const first = Math.max(0, Math.min(at - Math.floor(height / 2), rows.length - height));
  const shown = rows.slice(first, first + height).map((row): Line => ({
    text: rowText(cellsOf(row, freeIn), size.columns),
    ...(row.queue.name === selected && { style: "inverse" }),
  }));
  return [{ text: rowText(headOf(view.sort), size.columns), style: "bold" }, ...shown];
}

type Cells = readonly [
  name: string,
  kind: string,
  holder: string,
  waiting: string,
  held: string,
  rate: string,
];

const cellsOf = (row: Row, freeIn: FreeIn): Cells => [
  ...([row.queue.name, row.queue.kind, holderText(row.queue, freeIn)] as const),
  ...([String(waitingIn(row.queue)), heldCell(row), rateText(row.rate)] as const),
];

const headOf = (sort: SortKey): Cells => {
  const title = (text: string, key: SortKey): string => (key === sort ? `${text}*` : text);
  return [
    ...(["NAME", "KIND", "HOLDER"] as const),
    ...([title("WAIT", "waiters"), title("HELD", "held"), title("RATE", "rate")] as const),
  ];
};

function rowText([name, kind, holder, waiting, held, rate]: Cells, columns: number): string {
  const numbers = Object.values(NUMBERS).reduce((sum, each) => sum + each, GAPS);
  const rest = Math.max(12, columns - numbers);
  const nameWidth = Math.ceil(rest * 0.55);
  return [
    fit(name, nameWidth),
    fit(kind, NUMBERS.kind),
    fit(holder, rest - nameWidth),
    fit(waiting, NUMBERS.waiting, "right"),
    fit(held, NUMBERS.held, "right"),
    fit(rate, NUMBERS.rate, "right"),
  ].join("  ");
}

const rateText = (perSecond: number): string =>
  perSecond < 0.05 ? "0/s" : `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;

const ESC = "\u001b";
const STYLES: Readonly<Record<NonNullable<Line["style"]>, string>> = {
  bold: `${ESC}[1m`,
  dim: `${ESC}[2m`,
  inverse: `${ESC}[7m`,
  alert: `${ESC}[1;37;41m`,
};

/** The alternate screen, without cursor. A line that is too wide after all is cut, because lines do not wrap. */
export const ENTER_SCREEN = `${ESC}[?1049h${ESC}[?25l${ESC}[?7l${ESC}[2J`;
export const LEAVE_SCREEN = `${ESC}[0m${ESC}[?7h${ESC}[?25h${ESC}[?1049l`;

/** Knows what is on the screen, and writes only the lines that differ. */
export class Painter {
  #lines: readonly string[] = [];

  /** The next picture is written as a whole. */
  clear(): void {
    this.#lines = [];
  }

  /** What to write; empty if nothing has changed. */
  paint(lines: readonly Line[]): string {
    const painted = lines.map(({ text, style }) => (style ? `${STYLES[style]}${text}${ESC}[0m` : text));
    const changes = painted.flatMap((line, n) =>
      // Erased first: behind a full line, a terminal erases its last column. A style would fill what is erased.
      line === this.#lines[n] ? [] : `${ESC}[${n + 1};1H${ESC}[0m${ESC}[K${line}`,
    );
    const rest = this.#lines.length === 0 && painted.length > 0 ? `${ESC}[2J` : "";
    this.#lines = painted;
    return changes.length === 0 ? "" : rest + changes.join("");
  }
}
