// `npm run picture`: draws the imports between the folders of src/ into docs/architecture.md.
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { between } from "../test/support/fixtures/markdown.js";
import { filesOf, importsOf } from "./imports.js";
import { LAYERS, unitOf as tableUnitOf } from "./layers.js";

const PAGE = fileURLToPath(new URL("../docs/architecture.md", import.meta.url));

/**
 * What the picture shows as one unit: a folder of the table of layers, the files of the lowest layer next to the folders, or another file.
 * @param {string} file
 */
function unitOf(file) {
  const unit = tableUnitOf(file) ?? file;
  return LAYERS[0]?.includes(unit) && !unit.endsWith("/") ? "*.ts" : unit;
}

/** @param {string} page the text of docs/architecture.md @returns {string} the same text with the current imports */
export function withPicture(page) {
  const layers = unitsByLayer();
  const arrows = arrowsOf();
  const rows = layers.map((layer) => rowsOf(layer, arrows, layers.flat()));
  const width = Math.max(...rows.flat().map(([title]) => title.length));
  const lines = rows.flatMap((layer, n) =>
    layer.map(([title, imported], i) => {
      const number = i === 0 ? String(layers.length - n) : "";
      return `${number.padStart(2)}  ${title.padEnd(width)}  ${imported}`.trimEnd();
    }),
  );
  return between(page, "folders", ["```text", ...lines, "```"]);
}

/** The highest layer first, each unit once: the layers within a folder are not shown. */
function unitsByLayer() {
  const seen = new Set();
  const layers = LAYERS.map((names) => {
    const units = [...new Set(names.map(unitOf))].filter((unit) => !seen.has(unit));
    for (const unit of units) seen.add(unit);
    return units;
  });
  return layers.filter((layer) => layer.length > 0).reverse();
}

/**
 * A row for the units of a layer with the same imports.
 * @param {readonly string[]} layer
 * @param {ReadonlyMap<string, ReadonlySet<string>>} arrows
 * @param {readonly string[]} order of all units
 * @returns {readonly (readonly [title: string, imported: string])[]}
 */
function rowsOf(layer, arrows, order) {
  /** @type {Map<string, string[]>} */
  const byImports = new Map();
  for (const unit of layer) {
    const imported = order.filter((other) => other !== unit && arrows.get(unit)?.has(other)).join(" · ");
    byImports.set(imported, [...(byImports.get(imported) ?? []), unit]);
  }
  return [...byImports].map(([imported, units]) => [units.join(" · "), imported]);
}

/** What each unit imports. */
function arrowsOf() {
  /** @type {Map<string, Set<string>>} */
  const arrows = new Map();
  for (const { from, to } of filesOf().flatMap((file) => importsOf(file)))
    arrows.set(unitOf(from), (arrows.get(unitOf(from)) ?? new Set()).add(unitOf(to)));
  return arrows;
}

const isMain =
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url);
if (isMain) writeFileSync(PAGE, withPicture(readFileSync(PAGE, "utf8")));
