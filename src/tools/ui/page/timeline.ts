import type { Past } from "../protocol.js";
import { spanFor } from "../span.js";
import { count, draw, duration, shown } from "./dom.js";

const MAX_LANES = 8;
const LANE = 24;
const BAR = 14;
export const AXIS = 22;

/** What all bars of a picture share. */
export interface View {
  readonly now: number;
  readonly width: number;
  /** The width of the names. */
  readonly label: number;
  readonly spanMs: number;
}

/** Draws the holds of a queue: a lane for each holder, time from left to right, a cross where a lease ended. */
export function drawTimeline(svg: SVGSVGElement, history: readonly Past[], now: number): void {
  // The latest holders, by name: a lane stays where it is.
  const lanes = [...new Set(history.map(({ holder }) => holder).reverse())].slice(0, MAX_LANES).sort();
  const shownHolds = history.filter(({ holder }) => lanes.includes(holder));
  const width = Math.max(240, svg.clientWidth || 360);
  const label = Math.min(150, Math.round(width * 0.3));
  const view = { now, width, label, spanMs: spanOf(shownHolds, now) };
  const height = lanes.length * LANE + AXIS;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", String(height));
  svg.setAttribute("aria-label", summaryOf(history, view.spanMs));
  svg.replaceChildren(
    ...gridOf(view, height),
    ...lanes.flatMap((holder, lane) => [
      draw("text", { x: 0, y: lane * LANE + 16, class: "lane" }, cut(shown(holder), label)),
      ...shownHolds.filter((hold) => hold.holder === holder).flatMap((hold) => barOf(hold, lane, view)),
    ]),
  );
}

function spanOf(history: readonly Past[], now: number): number {
  const oldest = Math.min(now, ...history.map(({ from }) => from));
  // The latest holds of a long past matter.
  const latest = history.at(-6)?.from ?? oldest;
  return Math.min(spanFor(now - oldest), Math.max(spanFor(now - latest), 60_000));
}

/** The moments below a picture, with lines up to its top. */
export function gridOf({ width, label, spanMs }: View, height: number): SVGElement[] {
  const bottom = height - AXIS + 4;
  return [0, 1, 2, 3, 4].flatMap((n) => {
    const x = label + ((width - label - 1) * n) / 4;
    const anchor = n === 0 ? "start" : n === 4 ? "end" : "middle";
    const line = draw("line", { x1: x, x2: x, y1: 0, y2: bottom, class: "grid" });
    if (n % 2 === 1) return [line];
    const text = n === 4 ? "now" : `−${duration((spanMs * (4 - n)) / 4)}`;
    return [line, draw("text", { x, y: height - 4, "text-anchor": anchor }, text)];
  });
}

/** Where a time is; what was before the picture begins is at its left edge. */
export function xOf(time: number, { now, width, label, spanMs }: View): number {
  return label + (Math.max(0, spanMs - (now - time)) * (width - label - 1)) / spanMs;
}

function barOf({ holder, from, to, end }: Past, lane: number, view: View): SVGElement[] {
  if ((to ?? view.now) < view.now - view.spanMs) return [];
  const [x, right, y] = [xOf(from, view), xOf(to ?? view.now, view), lane * LANE + 4];
  const look = `bar${to === null ? " present" : ""}${end === "lease ended" ? " lost" : ""}`;
  const box = { x, y, width: Math.max(2, right - x), height: BAR, rx: 3, class: look };
  const bar = draw("rect", box);
  const title = `${shown(holder)}: ${duration((to ?? view.now) - from)}${end === "lease ended" ? ", its lease ended" : ""}`;
  bar.append(draw("title", {}, title));
  if (end !== "lease ended") return [bar];
  const [cx, cy] = [Math.min(right, view.width - 6), y + BAR / 2];
  return [bar, draw("path", { class: "cross", d: `M${cx - 4} ${cy - 4}l8 8m0-8l-8 8` })];
}

function summaryOf(history: readonly Past[], spanMs: number): string {
  const lost = history.filter(({ end }) => end === "lease ended").length;
  const holders = new Set(history.map(({ holder }) => holder)).size;
  const what = `${count(history.length, "hold")} by ${count(holders, "holder")}, ${lost} of them ended with their lease`;
  return `Who held it in the last ${duration(spanMs)}: ${what}. The table below shows the same as text.`;
}

/** About as many characters as fit. The end of `host:pid` tells more than its middle. */
export function cut(text: string, width: number): string {
  const most = Math.floor(width / 7);
  if (text.length <= most) return text;
  return `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;
}
