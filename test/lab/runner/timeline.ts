// A picture of a run: one row per process with its holds, claims and ends, above them the faults.
import type { Nemesis, Run, Step } from "./history.js";

interface Bar {
  readonly row: string;
  readonly from: number;
  readonly to: number;
  readonly color: string;
  readonly title: string;
}
interface Mark {
  readonly row: string;
  readonly at: number;
  readonly color: string;
  readonly title: string;
}

const ROW = 22;
const LABEL = 110;
const COLORS = ["#4477aa", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#ee6677", "#bbbbbb", "#000000"];

/** As SVG; `heading` names the seed and what was violated. */
export function timeline({ history }: Run, heading: readonly string[]): string {
  const start = history[0]?.t ?? 0n;
  const ms = (t: bigint) => Number(t - start) / 1e6;
  const end = ms(history.at(-1)?.t ?? start);
  const bars = [...faultBars(history, ms, end), ...holdBars(history, ms)];
  const marks = claimMarks(history, ms);
  const rows = [...new Set([...bars, ...marks].map(({ row }) => row))].sort(byKind);
  const scale = Math.max(0.02, Math.min(0.2, 8000 / Math.max(end, 1)));
  const x = (at: number) => LABEL + at * scale;
  const y = (row: string) => (heading.length + 2) * 16 + rows.indexOf(row) * ROW;
  const height = y("") + (rows.length + 3) * ROW;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${Math.ceil(x(end) + 20)}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="white"/>`,
    ...heading.map((line, n) => `<text x="8" y="${(n + 1) * 16}">${escape(line)}</text>`),
    ...seconds(end).map((s) => gridLine(x(s * 1000), height, s)),
    ...rows.map((row) => `<text x="8" y="${y(row) + 13}">${escape(row)}</text>`),
    ...bars.map((bar) => rectangle(bar, x, y)),
    ...marks.map(
      ({ at, row, color, title }) =>
        `<circle cx="${x(at).toFixed(1)}" cy="${y(row) + 8}" r="2" fill="${color}"><title>${escape(title)}</title></circle>`,
    ),
    `</svg>`,
  ].join("\n");
}

function rectangle(
  { from, to, row, color, title }: Bar,
  x: (at: number) => number,
  y: (row: string) => number,
) {
  const width = Math.max(1, x(to) - x(from)).toFixed(1);
  const box = `x="${x(from).toFixed(1)}" y="${y(row)}" width="${width}" height="${ROW - 6}"`;
  return `<rect ${box} fill="${color}" fill-opacity="0.6"><title>${escape(title)}</title></rect>`;
}

function gridLine(x: number, height: number, second: number): string {
  const line = `<line x1="${x}" x2="${x}" y1="0" y2="${height}" stroke="#eeeeee"/>`;
  return second % 5 === 0
    ? `${line}<text x="${x}" y="${height - 4}" fill="#888888">${second} s</text>`
    : line;
}

const seconds = (end: number) => Array.from({ length: Math.ceil(end / 1000) + 1 }, (_, s) => s);

/** A fault that was never healed lasts to the end. */
function faultBars(history: readonly Step[], ms: (t: bigint) => number, end: number): Bar[] {
  const open = new Map<string, Nemesis>();
  const bars: Bar[] = [];
  const close = (step: Nemesis, to: number) =>
    bars.push({
      row:
        step.effect === "hinders"
          ? "etcd"
          : step.effect === "takes-place"
            ? "places"
            : processOf(step.target),
      ...{ from: ms(step.t), to, color: "#ee3333", title: `${step.fault} ${step.target}` },
    });
  for (const step of history) {
    if (step.k !== "nemesis") continue;
    const key = `${step.fault} ${step.target}`;
    const begun = open.get(key);
    if (step.on) open.set(key, step);
    else if (begun !== undefined) close(begun, ms(step.t));
    if (!step.on) open.delete(key);
  }
  for (const step of open.values()) close(step, end);
  return bars;
}

/** From the grant to the release, the end or the last claim; one color per lock. */
function holdBars(history: readonly Step[], ms: (t: bigint) => number): Bar[] {
  const holds = new Map<string, { bar: Bar; over: boolean }>();
  const locks: string[] = [];
  for (const step of history) {
    if (!("id" in step)) continue;
    const key = `${step.p}#${step.id}`;
    if (step.k === "ok" && step.token !== undefined) {
      if (!locks.includes(step.lock)) locks.push(step.lock);
      const color = COLORS[locks.indexOf(step.lock) % COLORS.length] ?? "#000000";
      const title = `${key} holds ${step.lock}, fence ${step.token}`;
      const bar = { row: processOf(step.p), from: ms(step.t), to: ms(step.t), color, title };
      holds.set(key, { bar, over: false });
    }
    const hold = holds.get(key);
    if (hold === undefined || hold.over) continue;
    const over = step.k === "end" || (step.k === "invoke" && step.f === "release");
    if (over || (step.k === "claim" && step.held)) hold.bar = { ...hold.bar, to: ms(step.t) };
    hold.over = over;
  }
  return [...holds.values()].map(({ bar }) => bar);
}

function claimMarks(history: readonly Step[], ms: (t: bigint) => number): Mark[] {
  return history.flatMap((step) => {
    if (step.k !== "claim" && step.k !== "end") return [];
    const said = step.k === "end" ? `ended: ${step.reason}` : step.held ? "claims to hold" : "does not hold";
    const color = step.k === "end" ? "#ff8800" : step.held ? "#000000" : "#aaaaaa";
    const title = `${step.p}#${step.id} ${said} (${step.lock}, fence ${step.token}) at ${ms(step.t).toFixed(1)} ms`;
    return [{ row: processOf(step.p), at: ms(step.t), color, title }];
  });
}

/** "w2.1" and "w2.0" are one row. */
const processOf = (p: string) => p.replace(/\.\d+$/, "");
const byKind = (a: string, b: string) => rank(a) - rank(b) || a.localeCompare(b);
const rank = (row: string) => ["etcd", "places"].indexOf(row) + (/^(etcd|places)$/.test(row) ? 0 : 10);
const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
