// `node scripts/guardian-timeline.js`: draws docs/guardian-timeline.svg, for docs/leases.md. The picture is to scale: the deadline is
// that of the code, and the time that the guardian takes is the one that is measured on that page.
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { bar, boundaries, mark, STYLE, text, x } from "./lease-timeline.js";

const inRepository = (/** @type {string} */ file) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const PICTURE = inRepository("docs/guardian-timeline.svg");
const PAGE = inRepository("docs/leases.md");
const WIDTH = 860;
const ROW = 50;
/** When it happens to the holder, as a part of the TTL, and where the picture ends. */
const [EVENT, END] = [0.25, 1.35];
/** From the end of the TTL until etcd has told the next one in the queue. */
const EXPIRED = 1.02;

/**
 * @typedef {object} Span of a row
 * @property {number} from part of the TTL
 * @property {number} to
 * @property {"held" | "pause" | "over"} style of scripts/lease-timeline.js: `held` also by the next holder
 * @property {string} words
 *
 * @typedef {{ readonly names: readonly string[], readonly spans: readonly Span[] }} Row `names`: one or two lines
 */

/** @returns {{ p50: number, ttlMs: number }} milliseconds from `kill -9` to the next holder, and of the TTL, as the page has them */
function measured() {
  const page = readFileSync(PAGE, "utf8");
  const p50 = Number(/\| `kill -9` +\| ([\d.]+)/.exec(page)?.[1]);
  const ttlMs =
    Number(/with a TTL of (\d+) s, 50 rounds each \(`node scripts\/guardian-times/.exec(page)?.[1]) * 1000;
  if (!(p50 > 0 && ttlMs > 0)) throw new Error("docs/leases.md has no figure for kill -9");
  return { p50, ttlMs };
}

/** @returns {readonly Row[]} */
function rows() {
  const { deadline } = boundaries();
  const { p50, ttlMs } = measured();
  const guarded = EVENT + p50 / ttlMs;
  /** @type {Span} */
  const held = { from: 0, to: EVENT, style: "held", words: "holds" };
  return [
    {
      names: ["killed, no guardian"],
      spans: [
        held,
        { from: EVENT, to: EXPIRED, style: "pause", words: "dead, and the others wait for the TTL" },
        { from: EXPIRED, to: END, style: "held", words: "the next one holds" },
      ],
    },
    {
      names: ["killed, guardian"],
      spans: [held, { from: guarded, to: END, style: "held", words: `the next one holds after ${p50} ms` }],
    },
    {
      names: ["main thread blocked", "it renews"],
      spans: [
        held,
        { from: EVENT, to: deadline, style: "pause", words: "blocked: nothing is revoked" },
        { from: deadline, to: EXPIRED, style: "over", words: "lost" },
        { from: EXPIRED, to: END, style: "held", words: "the next one holds" },
      ],
    },
    {
      names: ["main thread blocked", "a worker renews"],
      spans: [
        held,
        { from: EVENT, to: END, style: "held", words: "blocked, and renewed until maxStallMs: holds" },
      ],
    },
  ];
}

/** @param {Row} row @param {number} n */
function drawn({ names, spans }, n) {
  const y = 60 + n * ROW;
  const first = y + 16 - (names.length - 1) * 7;
  return [
    ...names.map((name, k) => text(10, first + k * 15, name, k === 0 ? "" : "small")),
    ...spans.map(({ from, to, style }) => bar(from, to, [y, style])),
    ...spans.map(({ from, to, words }) => text(x((from + to) / 2), y + 16, words, "middle small")),
  ];
}

/** @returns {string} the picture */
export function guardianTimeline() {
  const all = rows();
  const bottom = 60 + all.length * ROW - 8;
  const height = bottom + 42;
  const { p50 } = measured();
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-labelledby="title">`,
    `<title id="title">A killed holder blocks the next one for the rest of the TTL, with a guardian for ${p50} ms. A blocked holder loses nothing before its deadline, or nothing at all if a worker thread renews</title>`,
    STYLE,
    `<rect class="page" width="${WIDTH}" height="${height}"/>`,
    mark(0, "renewal sent", { y: 20, bottom }),
    mark(EVENT, "killed or blocked", { y: 40, bottom }),
    mark(boundaries().deadline, `deadline, ${Math.round(boundaries().deadline * 100)} %`, { y: 20, bottom }),
    mark(1, "TTL, 100 %", { y: 40, bottom }),
    ...all.flatMap(drawn),
    text(
      x(0),
      bottom + 27,
      "Time since the last accepted renewal was sent. A block that ends before the deadline costs nothing.",
      "small",
    ),
    "</svg>",
  ].join("\n")}\n`;
}

if (realpathSync(process.argv[1] ?? "") === fileURLToPath(import.meta.url))
  writeFileSync(PICTURE, guardianTimeline());
