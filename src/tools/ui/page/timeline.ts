import type { Past } from "../protocol.js";
import { count, draw, duration, shown } from "./dom.js";

/** The spans of time that the picture may show, in seconds. */
const SPANS = [30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];
const MAX_LANES = 8;
const LANE = 24;
const BAR = 14;
const AXIS = 22;

interface View {
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
  const seconds = SPANS.find((span) => span * 1000 >= now - oldest) ?? SPANS.at(-1) ?? 0;
  // The latest holds of a long past matter.
  const latest = history.at(-6)?.from ?? oldest;
  const needed = SPANS.find((span) => span * 1000 >= now - latest) ?? seconds;
  return 1000 * Math.min(seconds, Math.max(needed, 60));
}

function gridOf({ width, label, spanMs }: View, height: number): SVGElement[] {
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

function barOf({ holder, from, to, end }: Past, lane: number, view: View): SVGElement[] {
  const scale = (view.width - view.label - 1) / view.spanMs;
  const at = (time: number): number => view.label + Math.max(0, view.spanMs - (view.now - time)) * scale;
  if ((to ?? view.now) < view.now - view.spanMs) return [];
  const [x, right, y] = [at(from), at(to ?? view.now), lane * LANE + 4];
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
function cut(text: string, width: number): string {
  const most = Math.floor(width / 7);
  if (text.length <= most) return text;
  return `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;
}
