import type { SeenEntry } from "../../../lock/queue/seen-entry.js";
import type { BoardQueue } from "../../../observe/board.js";
import { formatDuration } from "../command.js";
import { holderCell, withReason } from "../io.js";

/** Grants count for about so long. */
const WINDOW_MS = 10_000;
/** Below this, a name that has no queue is forgotten. */
const FORGOTTEN = 1e-6;

interface Rate {
  grants: number;
  /** In each millisecond, at `at`. */
  value: number;
  at: number;
}

/** How often the holder of each name changes lately: an average in which what is old counts less and less. */
export class Rates {
  readonly #names = new Map<string, Rate>();

  /** `grants`: all that the board has counted, from 0 when it began. */
  count(name: string, grants: number, at: number): void {
    const known = this.#names.get(name);
    if (grants === (known?.grants ?? 0)) return;
    // The board has forgotten the name in between and counts from 0 again.
    const more = known === undefined || grants < known.grants ? grants : grants - known.grants;
    const value = (known ? faded(known, at) : 0) + more / WINDOW_MS;
    this.#names.set(name, { grants, value, at });
  }

  perSecond(name: string, at: number): number {
    const rate = this.#names.get(name);
    return rate ? faded(rate, at) * 1000 : 0;
  }

  /** Drops the names that have no queue and no rate left. */
  forget(at: number, isLive: (name: string) => boolean): void {
    for (const [name, rate] of this.#names)
      if (faded(rate, at) < FORGOTTEN && !isLive(name)) this.#names.delete(name);
  }
}

const faded = ({ value, at }: Rate, now: number): number => value * Math.exp((at - now) / WINDOW_MS);

export type SortKey = "waiters" | "held" | "rate";

/** What the user has chosen to see. */
export interface View {
  readonly sort: SortKey;
  /** Undefined: the first one, whichever that is. */
  readonly selected: string | undefined;
  /** Names that contain it are shown, in upper or lower case. */
  readonly filter: string;
  /** The filter is being typed: letters are part of it. */
  readonly isTyping: boolean;
  /** The name whose queue is shown instead of the table. */
  readonly open: string | undefined;
  /** First line of that queue. */
  readonly scroll: number;
}

export const FIRST_VIEW: View = {
  sort: "waiters",
  selected: undefined,
  filter: "",
  isTyping: false,
  open: undefined,
  scroll: 0,
};

/** A key that was pressed, as Node's keypress events name it. */
export interface Key {
  readonly name?: string | undefined;
  readonly ctrl?: boolean | undefined;
  readonly meta?: boolean | undefined;
  /** What it writes. */
  readonly text?: string | undefined;
}

/** What a key can refer to. */
export interface Shown {
  /** The rows of the table, as they are sorted. */
  readonly names: readonly string[];
  /** Rows of a page. */
  readonly height: number;
  /** Lines of the open queue. */
  readonly length: number;
}

const SORTS: Readonly<Record<string, SortKey>> = { w: "waiters", h: "held", r: "rate" };

/** What is to be seen after a key, or the end of the program. */
export function press(view: View, key: Key, shown: Shown): View | "quit" {
  if (key.ctrl) return view;
  if (view.isTyping) return typed(view, key);
  if (key.text === "q") return "quit";
  const step = stepOf(key, shown.height);
  if (view.open !== undefined) {
    if (isEnter(key) || key.name === "escape" || key.name === "backspace")
      return { ...view, open: undefined };
    const last = Math.max(0, shown.length - shown.height);
    return step === undefined ? view : { ...view, scroll: Math.min(Math.max(0, view.scroll + step), last) };
  }
  if (step !== undefined) return { ...view, selected: moved(view, step, shown.names) };
  if (isEnter(key)) return { ...view, open: selectedOf(view, shown.names), scroll: 0 };
  if (key.text === "/") return { ...view, isTyping: true };
  if (key.name === "escape") return { ...view, filter: "", selected: undefined };
  return { ...view, sort: SORTS[key.text ?? ""] ?? view.sort };
}

/** The selected name is in the table, or else the first one is selected. */
export const selectedOf = ({ selected }: View, names: readonly string[]): string | undefined =>
  selected !== undefined && names.includes(selected) ? selected : names[0];

const isEnter = ({ name }: Key): boolean => name === "return" || name === "enter";

function typed(view: View, key: Key): View {
  if (isEnter(key)) return { ...view, isTyping: false };
  if (key.name === "escape") return { ...view, isTyping: false, filter: "" };
  if (key.name === "backspace") return { ...view, filter: [...view.filter].slice(0, -1).join("") };
  const isText = key.text !== undefined && !key.meta && /^[^\p{Cc}]+$/u.test(key.text);
  return isText ? { ...view, filter: (view.filter + key.text).slice(0, 200) } : view;
}

function stepOf({ name, text }: Key, height: number): number | undefined {
  const page = Math.max(1, height - 1);
  const steps: Readonly<Record<string, number>> = {
    up: -1,
    down: 1,
    k: -1,
    j: 1,
    pageup: -page,
    pagedown: page,
    home: -Infinity,
    end: Infinity,
  };
  return steps[name ?? ""] ?? steps[text ?? ""];
}

function moved(view: View, step: number, names: readonly string[]): string | undefined {
  const at = names.indexOf(selectedOf(view, names) ?? "");
  return names[Math.min(Math.max(0, at + step), names.length - 1)];
}

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
interface Held {
  readonly ms: number;
  /** False: at most so long. The grant was before this program began, or others may have followed by the same key. */
  readonly isExact: boolean;
}

export interface Table {
  /** Those that match the filter, in order. */
  readonly rows: readonly Row[];
  /** All of them, whatever the filter. */
  readonly locks: number;
  readonly holding: number;
  readonly waiting: number;
}

interface TableSettings {
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
    holding += holdingIn(queue);
    waiting += waitingIn(queue);
    if (wanted !== "" && !queue.name.toLowerCase().includes(wanted)) continue;
    const rate = rates.perSecond(queue.name, now.monotonic);
    rows.push({ queue, held: heldBy(shownHolder(queue), queue, now), rate });
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

/** Without the dead, who neither hold nor wait. */
export const holdingIn = ({ holderCount, deadHolders }: BoardQueue): number => holderCount - deadHolders;
export const waitingIn = ({ waiterCount, deadCount, deadHolders }: BoardQueue): number =>
  waiterCount - (deadCount - deadHolders);

/** The first one that holds; if all are dead, the first of them. */
export const shownHolder = ({ holders }: BoardQueue): SeenEntry | undefined =>
  holders.find(({ isDelay }) => !isDelay) ?? holders[0];

export function heldBy(holder: SeenEntry | undefined, queue: BoardQueue, now: Now): Held | undefined {
  if (holder?.isDelay) return undefined;
  const grantedAt = holder && queue.grantedAt(holder);
  // A caller may have taken a sticky one again, or none may have it.
  if (grantedAt !== undefined) return { ms: now.monotonic - grantedAt, isExact: holder?.sticky === false };
  if (holder?.since === undefined) return undefined;
  return { ms: Math.max(0, now.date.getTime() - holder.since.getTime()), isExact: false };
}

/** `<3 min`: at most. */
export const heldText = (held: Held | undefined): string =>
  held === undefined ? "?" : `${held.isExact ? "" : "<"}${formatDuration(Math.floor(held.ms / 1000) * 1000)}`;

/** In the table: of a dead holder, there is no such time. */
export const heldCell = ({ queue, held }: Pick<Row, "queue" | "held">): string =>
  shownHolder(queue)?.isDelay ? "-" : heldText(held);

/** The owner, the value of a candidate, or the key of a client that writes neither. */
export const labelOf = ({ owner, value, key }: SeenEntry): string => owner ?? value ?? key;

/** When the place of a dead entry is free, in milliseconds; undefined: it is not known. */
export type FreeIn = (entry: SeenEntry) => number | undefined;

/** The first holder, and how many hold besides it. If none does, its reason. */
export function holderText(queue: BoardQueue, freeIn: FreeIn): string {
  const first = shownHolder(queue);
  if (first === undefined) return "-";
  const ttlRemainingMs = first.isDelay ? freeIn(first) : undefined;
  const { isDelay, sticky } = first;
  const label = holderCell(labelOf(first), { state: isDelay ? "dead" : "holding", sticky, ttlRemainingMs });
  const others = first.isDelay ? queue.holderCount - 1 : holdingIn(queue) - 1;
  return others === 0 ? withReason(label, first) : `${label} +${others}`;
}
