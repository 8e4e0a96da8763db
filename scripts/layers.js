// The rules between the folders of src/, for the layers test and the figures.

/**
 * Folders, and files at the root, by layer, lowest first: a file imports from its own layer and from those below. The longest name
 * that a file begins with counts.
 * @type {readonly (readonly string[])[]}
 */
export const LAYERS = [
  ["base/", "errors", "kinds", "keys", "contender", "fence", "lock-name"],
  ["etcd/"],
  ["alive/"],
  ["lock/session/"],
  ["lock/queue/"],
  ["lock/hold/"],
  ["lock/"],
  ["observe/"],
  ["recipes/"],
  ["connect", "shutdown", "index"],
  ["testing/"],
  ["tools/"],
];

const NAMES = LAYERS.flat();

/** Whether a name of the table stands for the file. @param {string} name @param {string} file */
export const contains = (name, file) => (name.endsWith("/") ? file.startsWith(name) : file === name);

/** The name of the table that stands for a file. @param {string} file */
export function unitOf(file) {
  const names = NAMES.filter((name) => contains(name, file));
  return names.sort((a, b) => b.length - a.length)[0];
}

/** The number of a file's layer; -1 if the table does not contain it. @param {string} file */
export function layerOf(file) {
  const unit = unitOf(file);
  return LAYERS.findIndex((names) => unit !== undefined && names.includes(unit));
}

/** A type import may point anywhere in it: one story runs through its folders. */
const STORY = "lock/";

/**
 * Whether an import violates the table.
 * @param {{ readonly from: string, readonly to: string, readonly isTypeOnly?: boolean }} arrow
 */
export function isUpward({ from, to, isTypeOnly = false }) {
  if (isTypeOnly && contains(STORY, from) && contains(STORY, to)) return false;
  return layerOf(to) > layerOf(from);
}
