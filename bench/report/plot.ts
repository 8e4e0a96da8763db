// Hand-over rate and latency by contenders as an SVG; pure functions. Colors and grays are readable on white and on
// black.
export interface Series {
  readonly title: string;
  readonly color: string;
  readonly dashed: boolean;
  readonly points: readonly Point[];
}
export interface Point {
  readonly contenders: number;
  readonly figures: Readonly<Record<string, number>>;
}
export interface Panel {
  readonly figure: string;
  readonly title: string;
}

const PANEL = { width: 260, height: 220, left: 44, gap: 24, top: 28 };
const LEGEND = { row: 18, columns: 4 };
const BOTTOM = 34;
const INK = "#808890";

/** Both axes are logarithmic: a straight line is a power law. A missing or zero figure has no point. */
export function plot(series: readonly Series[], panels: readonly Panel[]): string {
  const column = PANEL.left + PANEL.width + PANEL.gap;
  const below = PANEL.top + PANEL.height + BOTTOM;
  const width = column * panels.length;
  const height = below + LEGEND.row * (Math.ceil(series.length / LEGEND.columns) + 0.5);
  const drawn = panels.map(
    (panel, n) => `<g transform="translate(${n * column} 0)">${panelOf(panel, series)}</g>`,
  );
  const entry = width / LEGEND.columns;
  const legend = series.map(({ title, ...look }, n) => {
    const [x, y] = [
      PANEL.left + (n % LEGEND.columns) * entry,
      below + Math.floor(n / LEGEND.columns) * LEGEND.row,
    ];
    return `<g transform="translate(${x} ${y})">${line(look, [
      [0, 6],
      [24, 6],
    ])}${text(30, 10, title)}</g>`;
  });
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="11" fill="${INK}">`;
  return [head, ...drawn, ...legend, "</svg>", ""].join("\n");
}

function panelOf({ figure, title }: Panel, series: readonly Series[]): string {
  const valid = (value: number | undefined): value is number => value !== undefined && value > 0;
  const points = series.flatMap((it) => it.points).filter((point) => valid(point.figures[figure]));
  const x = scale(
    points.map(({ contenders }) => contenders),
    [PANEL.left, PANEL.left + PANEL.width],
  );
  const y = scale(
    points.map(({ figures }) => figures[figure] ?? 1),
    [PANEL.top + PANEL.height, PANEL.top],
    10,
  );
  const lines = series.map(({ points: all, ...look }) => {
    const known = all.filter((point) => valid(point.figures[figure]));
    return line(
      look,
      known.map(({ contenders, figures }) => [x.at(contenders), y.at(figures[figure] ?? 1)]),
    );
  });
  const base = PANEL.top + PANEL.height;
  const contenders = [...new Set(points.map((point) => point.contenders))];
  return [
    text(PANEL.left, 16, title),
    ...y.decades.map(
      (value) => rule(y.at(value)) + text(PANEL.left - 6, y.at(value) + 4, count(value), "end"),
    ),
    ...contenders.map((value) => text(x.at(value), base + 16, count(value), "middle")),
    ...lines,
  ].join("\n");
}

interface Scale {
  at(value: number): number;
  /** The powers of ten within it. */
  readonly decades: readonly number[];
}

/** Logarithmic, from the minimum to the maximum, widened to powers of `to`. */
function scale(values: readonly number[], [start, end]: readonly [number, number], to?: number): Scale {
  const [least, most] = [Math.min(...values), Math.max(...values)].map(Math.log10) as [number, number];
  const [from, till] = to === undefined ? [least, most] : [Math.floor(least), Math.ceil(most)];
  const span = Math.max(till - from, Number.EPSILON);
  const decades = Array.from(
    { length: Math.max(0, Math.floor(till) - Math.ceil(from) + 1) },
    (_, n) => 10 ** (Math.ceil(from) + n),
  );
  const at = (value: number) =>
    Math.round((start + ((Math.log10(value) - from) / span) * (end - start)) * 10) / 10;
  return { at, decades: values.length === 0 ? [] : decades };
}

const count = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 3 });

function line({ color, dashed }: Pick<Series, "color" | "dashed">, points: readonly (readonly number[])[]) {
  const dots = points.map(([x, y]) => `<circle cx="${x}" cy="${y}" r="2.5" fill="${color}"/>`);
  const dash = dashed ? ` stroke-dasharray="5 3"` : "";
  const path = `<polyline points="${points.join(" ")}" fill="none" stroke="${color}" stroke-width="1.8"${dash}/>`;
  return points.length === 0 ? "" : path + dots.join("");
}

const rule = (y: number) =>
  `<path d="M${PANEL.left} ${y}h${PANEL.width}" stroke="${INK}" stroke-opacity="0.3"/>`;

const escaped = (content: string) => content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

const text = (x: number, y: number, content: string, anchor = "start") =>
  `<text x="${x}" y="${y}" text-anchor="${anchor}">${escaped(content)}</text>`;
