// Measures a tree of TypeScript files: folders, imports, circles, lengths of functions and files.
import { readFileSync } from "node:fs";
import path from "node:path";
import { Linter } from "eslint";
import tseslint from "typescript-eslint";
import { filesOf, folderOf, importsOf } from "./imports.js";
import { isUpward, layerOf } from "./layers.js";

/**
 * @typedef {object} Length of a function or a file
 * @property {string} file without its extension
 * @property {string} name as ESLint prints it: "Function 'connect'", "File"
 * @property {number} line where it begins
 * @property {number} lines
 */
/** @typedef {{ readonly from: string, readonly to: string }} Arrow */

/** Counts as eslint.config.js does, but in every file. @type {import("eslint").Linter.RulesRecord} */
const RULES = {
  "max-lines": ["error", 0],
  "max-lines-per-function": ["error", { max: 0, skipBlankLines: true, skipComments: true }],
};

/** @param {string} root the folder of the files */
export function measure(root) {
  const files = filesOf(root);
  const imports = files.flatMap((file) => importsOf(file, root)).filter(({ to }) => files.includes(to));
  const lengths = files.flatMap((file) => lengthsOf(file, root));
  return {
    files,
    folders: [...new Set(files.map(folderOf))].filter((folder) => folder !== ""),
    imports,
    folderArrows: folderArrowsOf(imports),
    /** `undefined` for a tree with files that the table of layers does not contain. */
    upward: files.every((file) => layerOf(file) !== -1) ? imports.filter(isUpward) : undefined,
    circles: circlesOf(files, imports),
    fileLengths: lengths.filter(({ name }) => name === "File"),
    functionLengths: lengths.filter(({ name }) => name !== "File"),
  };
}

/**
 * Each folder that imports from another one, once. A file at the root counts as a folder.
 * @param {readonly Arrow[]} imports
 */
function folderArrowsOf(imports) {
  /** @param {string} file */
  const end = (file) => folderOf(file) || file;
  const crossing = imports.filter(({ from, to }) => end(from) !== end(to));
  return [...new Set(crossing.map(({ from, to }) => `${end(from)} -> ${end(to)}`))];
}

/**
 * The groups of files that all import each other, directly or through others.
 * @param {readonly string[]} files @param {readonly Arrow[]} imports @returns {string[][]}
 */
function circlesOf(files, imports) {
  const reached = new Map(files.map((file) => [file, reachedFrom(file, imports)]));
  /** @param {string} one @param {string} other */
  const reaches = (one, other) => reached.get(one)?.has(other) === true;
  const groups = files
    .filter((file) => reaches(file, file))
    .map((file) => files.filter((other) => reaches(file, other) && reaches(other, file)));
  return groups.filter((group, n) => groups.findIndex(([first]) => first === group[0]) === n);
}

/** @param {string} start @param {readonly Arrow[]} imports */
function reachedFrom(start, imports) {
  /** @type {Set<string>} */
  const reached = new Set();
  const open = [start];
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    const next = imports.filter(({ from, to }) => from === file && !reached.has(to)).map(({ to }) => to);
    for (const to of next) reached.add(to);
    open.push(...next);
  }
  return reached;
}

/** @param {string} file @param {string} root @returns {Length[]} */
function lengthsOf(file, root) {
  const text = readFileSync(path.join(root, `${file}.ts`), "utf8");
  const parser = /** @type {import("eslint").Linter.Parser} */ (tseslint.parser);
  const config = { files: ["**/*.ts"], languageOptions: { parser }, rules: RULES };
  const messages = new Linter().verify(text, config, { filename: `${file}.ts`, allowInlineConfig: false });
  return messages.map(({ message, line }) => {
    const [, name, lines] = /^(.+) has too many lines \((\d+)\)/.exec(message) ?? [];
    if (name === undefined) throw new Error(`${file}: ${message}`);
    return { file, name, line, lines: Number(lines) };
  });
}
