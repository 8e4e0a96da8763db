import type { BoardEntry, BoardEvent, BoardQueue } from "../../board/board.js";
import { formatDuration } from "../command-line/duration.js";
import { cut, fit } from "./fit.js";
import type { Line, Size } from "./layout.js";
import { heldBy, heldText, labelOf, type Now } from "./rows.js";

/** The queue of one name. */
export interface QueuePicture {
  readonly name: string;
  /** Undefined: nobody is in it now. */
  readonly queue: BoardQueue | undefined;
  readonly history: readonly BoardEvent[];
  /** The first line that is shown. */
  readonly scroll: number;
}

/** How many lines a queue has, besides its title. */
export const queueLength = ({ queue, history }: QueuePicture): number =>
  (queue ? queue.holders.length + queue.waiterCount : 1) + (history.length > 0 ? history.length + 1 : 0);

/** The title, and the lines that there is room for. Only those are made: a queue may have thousands. */
export function queueLines(picture: QueuePicture, now: Now, size: Size): readonly Line[] {
  const { name, queue, scroll } = picture;
  const numbers = queue
    ? `${queue.kind}, ${queue.holders.length} holding, ${queue.waiterCount} waiting`
    : "free";
  const room = Math.max(8, size.columns - numbers.length - 2);
  const title: Line = { text: `${cut(name, room)}  ${numbers}`, style: "bold" };
  const makers = [...entryMakers(picture, now, size), ...eventMakers(picture, now)];
  return [title, ...makers.slice(scroll, scroll + size.rows).map((make) => make())];
}

type Maker = () => Line;

function entryMakers({ queue }: QueuePicture, now: Now, size: Size): readonly Maker[] {
  if (queue === undefined) return [() => ({ text: "  nobody holds it, and nobody waits" })];
  const { holders, waiters } = queue;
  return [
    ...holders.map((entry): Maker => {
      const state = `holds ${heldText(heldBy(entry, now))}`;
      return () => ({ text: entryText(state, entry, size.columns) });
    }),
    ...waiters.map((entry, n): Maker => () => ({
      text: entryText(`${n + 1}. ${waitText(entry, now)}`, entry, size.columns),
    })),
  ];
}

const waitText = ({ since }: BoardEntry, { date }: Now): string =>
  since === undefined ? "waits" : `waits ${formatDuration(Math.max(0, date.getTime() - since.getTime()))}`;

function entryText(state: string, entry: BoardEntry, columns: number): string {
  const rest = Math.max(16, columns - 44);
  const lease = entry.leaseId === 0n ? "no lease" : `lease ${entry.leaseId.toString(16)}`;
  return `  ${fit(state, 18)}  ${fit(labelOf(entry), rest)}  ${cut(lease, 22)}`;
}

/** The latest first. */
function eventMakers({ history }: QueuePicture, now: Now): readonly Maker[] {
  if (history.length === 0) return [];
  const seen = history.toReversed().map((event): Maker => () => ({ text: eventText(event, now) }));
  return [() => ({ text: "seen lately:", style: "bold" }), ...seen];
}

function eventText({ kind, entry, at, together }: BoardEvent, now: Now): string {
  const ago = formatDuration(Math.max(0, now.monotonic - at));
  const what = kind === "ended" ? "released, or lost" : kind;
  const keys = kind === "ended" && together !== undefined && together > 1;
  return `  ${fit(`${ago} ago`, 12)}  ${fit(what, 17)}  ${labelOf(entry)}${keys ? ` (with ${together} keys of its lease)` : ""}`;
}
