// `node scripts/lease-timeline.js`: draws docs/lease-timeline.svg, and writes the table of TTLs into docs/leases.md. The picture is to
// scale: the figures are those of the code.
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { between, markdownTable } from "../test/support/fixtures/markdown.js";

const inRepository = (/** @type {string} */ file) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const PICTURE = inRepository("docs/lease-timeline.svg");
const PAGE = inRepository("docs/leases.md");
const REQUEST_TIMEOUT = /checkInteger\("requestTimeoutMs"[^}]*fallback: (\d+)/;
const TTLS = [2, 5, 10, 15, 30, 60];

/** @param {string} file @param {RegExp} pattern @returns {number} the number that the pattern finds in the file */
function figureIn(file, pattern) {
  const value = pattern.exec(readFileSync(inRepository(file), "utf8"))?.[1];
  if (value === undefined) throw new Error(`${file} does not match ${pattern.source}`);
  return Number(value);
}

/** @returns {{ renewal: number, jeopardy: number, deadline: number, call: number }} parts of the TTL */
export function boundaries() {
  return {
    renewal: 1 / figureIn("src/etcd/keepalive.ts", /sent\.monotonic \+ lease\.ttlMs \/ (\d+)/),
    jeopardy: figureIn("src/lock/session/lease.ts", /^const JEOPARDY_PART = ([\d.]+);$/m),
    deadline: figureIn("src/lock/session/lease.ts", /^const USED_PART = ([\d.]+);$/m),
    call: 1 / figureIn("src/lock/session/lease.ts", /attemptMs: this\.ttlMs \/ (\d+)/),
  };
}

const percent = (/** @type {number} */ part) => `${Math.round(part * 100)} %`;

/** @param {string} page docs/leases.md @returns {string} the page with the figures of the code */
export function withTtls(page) {
  const { renewal, jeopardy, deadline, call } = boundaries();
  const requestSeconds = figureIn("src/base/options/connect.ts", REQUEST_TIMEOUT) / 1000;
  const of = (/** @type {number} */ ttl) => (/** @type {number} */ part) =>
    String(Math.round(ttl * part * 10) / 10);
  const head = [
    "`ttlSeconds`",
    "renewal due",
    "`jeopardy` from",
    "lost at",
    "one attempt may take",
    "others wait, at most",
  ];
  const rows = TTLS.map((ttl) => [
    String(ttl),
    ...[renewal, jeopardy, deadline].map(of(ttl)),
    String(Math.min(requestSeconds, Number(of(ttl)(call)))),
    String(ttl + 0.5),
  ]);
  return between(page, "ttl", markdownTable([head, ...rows]));
}

const LEFT = 150;
const TTL_WIDTH = 500;
const [WIDTH, HEIGHT] = [860, 300];

/** Of the pictures, light and dark. */
export const STYLE = [
  "<style>",
  "text { font: 13px system-ui, sans-serif; fill: #1f2328; } .middle { text-anchor: middle; } .small { font-size: 12px; }",
  "line { stroke: #59636e; stroke-dasharray: 3 3; } .page { fill: #ffffff; }",
  ".held { fill: #8fd0a0; } .doubt { fill: #f2cf73; } .over { fill: #f3a6a0; } .pause { fill: none; stroke: #59636e; stroke-dasharray: 4 3; }",
  ".etcd { fill: #a9c7f0; } .write { fill: #c4332b; }",
  "@media (prefers-color-scheme: dark) {",
  "text { fill: #e6edf3; } line, .pause { stroke: #9198a1; } .page { fill: #0d1117; }",
  ".held { fill: #2a6b3c; } .doubt { fill: #7d5b0e; } .over { fill: #8e2f2b; } .etcd { fill: #2b4f82; } .write { fill: #ff7b72; } }",
  "</style>",
].join("\n");

/** @param {number} part of the TTL */
export const x = (part) => LEFT + part * TTL_WIDTH;

/** @param {number} from @param {number} to @param {readonly [y: number, style: string]} place */
export const bar = (from, to, [y, style]) =>
  `<rect class="${style}" x="${x(from)}" y="${y}" width="${x(to) - x(from)}" height="22" rx="3"/>`;

/** @param {number} at @param {number} y @param {string} words @param {string} [style] */
export const text = (at, y, words, style = "") => `<text class="${style}" x="${at}" y="${y}">${words}</text>`;

/** @param {number} part @param {string} words @param {{ y: number, bottom?: number }} place */
export const mark = (part, words, { y, bottom = 258 }) =>
  [`<line x1="${x(part)}" y1="52" x2="${x(part)}" y2="${bottom}"/>`, text(x(part), y, words, "middle")].join(
    "\n",
  );

/** @returns {string} the picture */
export function timeline() {
  const { jeopardy, deadline } = boundaries();
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="title">`,
    `<title id="title">A paused holder: its signal aborts at ${percent(deadline)} of the TTL, etcd expires the lease at 100 %, and the write after the pause is late</title>`,
    STYLE,
    `<rect class="page" width="${WIDTH}" height="${HEIGHT}"/>`,
    mark(0, "renewal sent", { y: 20 }),
    mark(jeopardy, `jeopardy, ${percent(jeopardy)}`, { y: 40 }),
    mark(deadline, `deadline, ${percent(deadline)}`, { y: 20 }),
    mark(1, "TTL, 100 %", { y: 40 }),
    text(10, 76, "holder A, running"),
    bar(0, jeopardy, [60, "held"]),
    bar(jeopardy, deadline, [60, "doubt"]),
    bar(deadline, 1.35, [60, "over"]),
    text(x(jeopardy / 2), 76, "held", "middle"),
    text(x((jeopardy + deadline) / 2), 76, "held, renewal overdue", "middle small"),
    text(x(deadline) + 8, 76, "lost: signal aborted", "small"),
    text(10, 126, "holder A, paused"),
    bar(0, 0.35, [110, "held"]),
    bar(0.35, 1.2, [110, "pause"]),
    text(x(0.775), 126, "no code runs, no signal aborts", "middle small"),
    `<circle class="write" cx="${x(1.23)}" cy="121" r="6"/>`,
    text(x(1.25), 126, "late write"),
    text(10, 176, "etcd"),
    bar(0.01, 1.02, [160, "etcd"]),
    text(x(0.5), 176, "the lease of A lives", "middle"),
    text(10, 226, "holder B"),
    bar(1.02, 1.35, [210, "held"]),
    text(x(1.185), 226, "held, higher fence", "middle small"),
    text(
      x(0),
      285,
      "Time since the last accepted renewal was sent. Renewals are due every third of the TTL; here none gets through.",
      "small",
    ),
    "</svg>",
  ].join("\n")}\n`;
}

if (realpathSync(process.argv[1] ?? "") === fileURLToPath(import.meta.url)) {
  writeFileSync(PICTURE, timeline());
  writeFileSync(PAGE, withTtls(readFileSync(PAGE, "utf8")));
}
