// The rules between the folders of src/, for the layers test and the figures.
import { folderOf } from "./imports.js";

/**
 * Folders, and files at the root, by layer, lowest first: a file imports from its own layer and from those below.
 * @type {readonly (readonly string[])[]}
 */
export const LAYERS = [
  ["util/", "options/", "telemetry/", "errors", "kinds", "keys", "contender", "fence", "lock-name"],
  ["etcd/"],
  ["session/"],
  ["queue/"],
  ["hold/"],
  ["locks/", "election/", "once/", "web-locks/", "view/"],
  ["connect", "shutdown", "index"],
  ["memory/", "otel/", "testing/", "ui/"],
  ["cli/"],
];

/** A type import may point anywhere among them: one story runs through all three. */
const STORY = ["session", "queue", "hold"];

/** The folder of src/ that a file is in, or the file itself. @param {string} file */
const unitOf = (file) => file.split("/")[0] ?? file;

/** The number of a file's layer; -1 if the table does not contain it. @param {string} file */
export function layerOf(file) {
  const unit = folderOf(file) === "" ? file : `${unitOf(file)}/`;
  return LAYERS.findIndex((names) => names.includes(unit));
}

/**
 * Whether an import violates the table.
 * @param {{ readonly from: string, readonly to: string, readonly isTypeOnly?: boolean }} arrow
 */
export function isUpward({ from, to, isTypeOnly = false }) {
  if (isTypeOnly && STORY.includes(unitOf(from)) && STORY.includes(unitOf(to))) return false;
  return layerOf(to) > layerOf(from);
}
