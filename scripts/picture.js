// `node scripts/picture.js`: draws what the folders of src/ import into docs/architecture.md.
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { between } from "../test/support/fixtures/markdown.js";
import { filesOf, importsOf } from "./imports.js";
import { LAYERS } from "./layers.js";

const PAGE = fileURLToPath(new URL("../docs/architecture.md", import.meta.url));

/** @typedef {(file: string) => string | undefined} UnitOf the box of the picture that a file is in, if it is in one */

/** A folder of src/ with all below it, or a file beside them. @type {UnitOf} */
const topUnit = (file) => (file.includes("/") ? file.slice(0, file.indexOf("/") + 1) : file);

/** A folder of etcd/, or a file in it. @type {UnitOf} */
const etcdUnit = (file) => (file.startsWith("etcd/") ? topUnit(file.slice("etcd/".length)) : undefined);

/** @param {string} page the text of docs/architecture.md @returns {string} the same with the present imports */
export function withPictures(page) {
  return between(between(page, "folders", pictureOf(topUnit)), "etcd", pictureOf(etcdUnit));
}

/** One line for each unit, the highest layer first. @param {UnitOf} unitOf @returns {readonly string[]} */
function pictureOf(unitOf) {
  const layers = layersOf(unitOf);
  const units = layers.flat();
  const width = Math.max(...units.map((unit) => unit.length));
  const lines = layers.flatMap((layer, n) =>
    layer.map((unit, i) => {
      const number = i === 0 ? String(layers.length - n) : "";
      return `${number.padStart(2)}  ${unit.padEnd(width)}  ${importedBy(unit, unitOf, units).join(" · ")}`;
    }),
  );
  return ["```text", ...lines.map((line) => line.trimEnd()), "```"];
}

/** The units of each layer, the highest layer first, each unit once. @param {UnitOf} unitOf */
function layersOf(unitOf) {
  const seen = new Set();
  const layers = LAYERS.map((names) => {
    const units = new Set(names.map((name) => unitOf(name) ?? ""));
    return [...units].filter((unit) => unit !== "" && !seen.has(unit) && seen.add(unit));
  });
  return layers.filter((layer) => layer.length > 0).reverse();
}

/** @param {string} unit @param {UnitOf} unitOf @param {readonly string[]} units @returns {readonly string[]} in their order */
function importedBy(unit, unitOf, units) {
  const own = filesOf().filter((file) => unitOf(file) === unit);
  const targets = new Set(own.flatMap((file) => importsOf(file).map(({ to }) => unitOf(to))));
  return units.filter((other) => other !== unit && targets.has(other));
}

const isMain =
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url);
if (isMain) writeFileSync(PAGE, withPictures(readFileSync(PAGE, "utf8")));
