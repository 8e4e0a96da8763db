import type { BoardEntry, BoardQueue } from "../../board/board.js";
import { formatDuration } from "../command-line/duration.js";
import type { Rates } from "./rates.js";
import type { SortKey } from "./view.js";

/** Now, on both clocks: grants are seen on the monotonic one, joins are written with the other. */
export interface Now {
  readonly monotonic: number;
  readonly date: Date;
}

/** A line of the table. */
export interface Row {
  readonly queue: BoardQueue;
  readonly held: Held | undefined;
  /** Grants in a second. */
  readonly rate: number;
}

/** For how long the first holder has held. */
export interface Held {
  readonly ms: number;
  /** False: since it joined the queue. The grant was before this program began. */
  readonly isExact: boolean;
}

export interface Table {
  /** Those that match the filter, in order. */
  readonly rows: readonly Row[];
  /** Of all, whatever the filter. */
  readonly locks: number;
  readonly holding: number;
  readonly waiting: number;
}

export interface TableSettings {
  readonly sort: SortKey;
  readonly filter: string;
  readonly rates: Rates;
  readonly now: Now;
}

export function tableOf(queues: Iterable<BoardQueue>, { sort, filter, rates, now }: TableSettings): Table {
  const wanted = filter.toLowerCase();
  const rows: Row[] = [];
  let [locks, holding, waiting] = [0, 0, 0];
  for (const queue of queues) {
    locks++;
    holding += queue.holders.length;
    waiting += queue.waiterCount;
    if (wanted !== "" && !queue.name.toLowerCase().includes(wanted)) continue;
    const rate = rates.perSecond(queue.name, now.monotonic);
    rows.push({ queue, held: heldBy(queue.holders[0], now), rate });
  }
  const weigh = WEIGHTS[sort];
  rows.sort((a, b) => weigh(b) - weigh(a) || (a.queue.name < b.queue.name ? -1 : 1));
  return { rows, locks, holding, waiting };
}

const WEIGHTS: Readonly<Record<SortKey, (row: Row) => number>> = {
  waiters: ({ queue }) => queue.waiterCount,
  held: ({ held }) => held?.ms ?? -1,
  rate: ({ rate }) => rate,
};

export function heldBy(holder: BoardEntry | undefined, now: Now): Held | undefined {
  if (holder?.grantedAt !== undefined) return { ms: now.monotonic - holder.grantedAt, isExact: true };
  if (holder?.since === undefined) return undefined;
  return { ms: Math.max(0, now.date.getTime() - holder.since.getTime()), isExact: false };
}

/** `<3 min`: at most, because it joined the queue then. */
export const heldText = (held: Held | undefined): string =>
  held === undefined ? "?" : `${held.isExact ? "" : "<"}${formatDuration(Math.floor(held.ms / 1000) * 1000)}`;

/** The owner, or the key of a client that writes none. */
export const labelOf = ({ owner, key }: BoardEntry): string => owner ?? key;

/** The first holder, and how many hold besides it. */
export function holderText({ holders }: BoardQueue): string {
  const [first] = holders;
  if (first === undefined) return "-";
  return holders.length === 1 ? labelOf(first) : `${labelOf(first)} +${holders.length - 1}`;
}
