import { formatDuration } from "../command-line/duration.js";
import type { Contact } from "./contact.js";
import { cut, fit } from "./fit.js";
import { queueLines, type QueuePicture } from "./queue-lines.js";
import { heldText, holderText, type Now, type Row, type Table } from "./rows.js";
import type { SortKey, View } from "./view.js";

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** A line of the screen; `style` is that of all of it. */
export interface Line {
  readonly text: string;
  readonly style?: "bold" | "dim" | "inverse" | "alert";
}

/** All that a screen is made of. */
export interface Picture {
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
  readonly now: Now;
}

/** Title, state, columns, and the keys at the end. */
const FRAME_LINES = 4;

/** How many rows of the table, or lines of the queue, there is room for. */
export const bodyHeight = ({ rows }: Size): number => Math.max(1, rows - FRAME_LINES);

/** The whole screen, one line for each row of the terminal. */
export function layout(picture: Picture, size: Size): readonly Line[] {
  const height = bodyHeight(size);
  const { queue } = picture;
  const body = queue ? queueLines(queue, picture.now, size) : tableLines(picture, size);
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
    text: `leasehold top  ${where}  ${locks} locks  ${holding} holding  ${waiting} waiting  ${rateText(rate)} grants`,
    style: "bold",
  };
}

function stateLine({ contact, revision, view, now }: Picture): Line {
  const { state, since, error } = contact;
  if (state === "silent") {
    const ago = formatDuration(Math.floor((now.monotonic - since) / 1000) * 1000);
    const old = revision === 0n ? "nothing was read yet" : `this is revision ${revision}`;
    return { text: `ETCD DOES NOT ANSWER for ${ago}; ${old}. ${error?.message ?? ""}`, style: "alert" };
  }
  if (view.isTyping) return { text: `filter: ${view.filter}_` };
  if (revision === 0n) return { text: "reading" };
  const filter = view.filter === "" ? "" : `  filter: ${view.filter} (Esc removes it)`;
  return { text: `revision ${revision}${filter}` };
}

const NUMBERS = { kind: 9, waiting: 7, held: 8, rate: 8 };
const GAPS = 5 * 2;

function tableLines({ table, view, selected }: Picture, size: Size): readonly Line[] {
  const { rows } = table;
  const height = bodyHeight(size);
  const at = Math.max(
    0,
    rows.findIndex(({ queue }) => queue.name === selected),
  );
  const first = Math.max(0, Math.min(at - Math.floor(height / 2), rows.length - height));
  const shown = rows.slice(first, first + height).map((row): Line => ({
    text: rowText(cellsOf(row), size.columns),
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

const cellsOf = ({ queue, held, rate }: Row): Cells => [
  ...([queue.name, queue.kind, holderText(queue)] as const),
  ...([String(queue.waiterCount), heldText(held), rateText(rate)] as const),
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

export const rateText = (perSecond: number): string =>
  perSecond < 0.05 ? "0/s" : `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;
