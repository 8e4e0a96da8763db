// What the files of src/ import, for the layers test, the figures and the picture in docs/architecture.md.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

export const SRC = fileURLToPath(new URL("../src/", import.meta.url));

/**
 * @typedef {object} Import
 * @property {string} from a file of src/ without its extension
 * @property {string} to the same, or the name of a package
 * @property {boolean} isTypeOnly
 * @property {boolean} isLazy `import()`: loaded when that line runs
 */

/** Every file below `root` without its extension, sorted. @param {string} [root] */
export function filesOf(root = SRC) {
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => file.slice(0, -3).replaceAll(path.sep, "/"))
    .sort();
}

/** @param {string} file without its extension @param {string} [root] @returns {Import[]} its imports and re-exports */
export function importsOf(file, root = SRC) {
  const text = readFileSync(path.join(root, `${file}.ts`), "utf8");
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest);
  const atOnce = source.statements.flatMap((statement) => {
    if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) return [];
    const specifier = statement.moduleSpecifier;
    if (!specifier || !ts.isStringLiteral(specifier)) return [];
    const to = targetOf(file, specifier.text);
    return [{ from: file, to, isTypeOnly: isTypeOnly(statement), isLazy: false }];
  });
  const later = lazyIn(source).map((specifier) => {
    return { from: file, to: targetOf(file, specifier), isTypeOnly: false, isLazy: true };
  });
  return [...atOnce, ...later];
}

/** @param {ts.Node} node @returns {string[]} what each `import()` in it loads */
function lazyIn(node) {
  /** @type {string[]} */
  const found = [];
  if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
    const [specifier] = node.arguments;
    found.push(specifier && ts.isStringLiteral(specifier) ? specifier.text : "an expression");
  }
  ts.forEachChild(node, (child) => void found.push(...lazyIn(child)));
  return found;
}

/** The folder of a file of src/, "" for the root. @param {string} file */
export function folderOf(file) {
  return file.includes("/") ? path.posix.dirname(file) : "";
}

/**
 * @param {ReadonlyMap<string, readonly string[]>} edges
 * @returns {readonly string[] | undefined} the first cycle found, with its first file repeated at the end
 */
export function findCycle(edges) {
  const done = new Set();
  /** @param {string} file @param {readonly string[]} trail @returns {readonly string[] | undefined} */
  const visit = (file, trail) => {
    if (trail.includes(file)) return [...trail.slice(trail.indexOf(file)), file];
    if (done.has(file)) return undefined;
    for (const next of edges.get(file) ?? []) {
      const cycle = visit(next, [...trail, file]);
      if (cycle) return cycle;
    }
    done.add(file);
    return undefined;
  };
  for (const file of edges.keys()) {
    const cycle = visit(file, []);
    if (cycle) return cycle;
  }
  return undefined;
}

/**
 * `import { type A } from "./a.js"` still loads a.js under this project's compiler options.
 * @param {ts.ImportDeclaration | ts.ExportDeclaration} statement
 */
function isTypeOnly(statement) {
  if (ts.isExportDeclaration(statement)) return statement.isTypeOnly;
  return statement.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword;
}

/** @param {string} file @param {string} specifier */
function targetOf(file, specifier) {
  if (!specifier.startsWith(".")) return specifier;
  return path.posix.join(path.posix.dirname(file), specifier).replace(/\.js$/, "");
}
