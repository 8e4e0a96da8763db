// `node scripts/figures.js [SRC]` prints the figures of src/, or of the src/ of another checkout. For an older commit:
// `git archive COMMIT src | tar -x -C DIR && node scripts/figures.js DIR/src`.
// `node scripts/figures.js --lock [DIST]` takes a free lock on a real etcd, and releases it, with the modules in dist/, or those of
// another build: it prints what of the library runs for each.
import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import ts from "typescript";
import { filesOf, folderOf, importsOf, SRC } from "./imports.js";
import { isUpward, layerOf, LAYERS } from "./layers.js";

/** @param {string} what @param {number | string} figure */
const show = (what, figure) => console.log(`${String(figure).padStart(7)}  ${what}`);

/** @param {string} root */
function showTree(root) {
  const files = filesOf(root);
  const texts = files.map((file) => readFileSync(path.join(root, `${file}.ts`), "utf8"));
  const lengths = texts.map((text) => text.split("\n").length - 1);
  const byLength = files.map((file, n) => ({ file, lines: lengths[n] ?? 0 }));
  byLength.sort((a, b) => a.lines - b.lines);
  const longest = byLength.at(-1);
  const imports = files.flatMap((file) => importsOf(file, root)).filter(({ to }) => files.includes(to));
  show("files", files.length);
  show("folders", new Set(files.map(folderOf).filter((folder) => folder !== "")).size);
  show(
    "lines",
    lengths.reduce((sum, lines) => sum + lines, 0),
  );
  show("lines in the median file", byLength[Math.floor(files.length / 2)]?.lines ?? 0);
  show(`lines in the longest file, ${longest?.file}.ts`, longest?.lines ?? 0);
  show("interfaces", declared(texts, ts.isInterfaceDeclaration));
  show("classes", declared(texts, ts.isClassDeclaration));
  show("imports between files", imports.length);
  // The files of another checkout may have other layers.
  if (files.some((file) => layerOf(file) === -1)) return;
  show("layers", LAYERS.length);
  show("imports of a higher layer", imports.filter(isUpward).length);
}

/** @param {readonly string[]} texts @param {(node: ts.Node) => boolean} is */
function declared(texts, is) {
  const sources = texts.map((text) => ts.createSourceFile("a.ts", text, ts.ScriptTarget.Latest));
  return sources.flatMap(({ statements }) => statements.filter(is)).length;
}

/** @param {string} dist */
async function showLock(dist) {
  const { traceLock } = await import("./lock-trace.js");
  for (const [call, trace] of Object.entries(await traceLock(dist))) {
    console.log(`${call}:`);
    for (const [what, figure] of Object.entries(trace)) show(what, figure);
  }
}

const [first, second] = process.argv.slice(2);
if (first === "--lock") await showLock(pathToFileURL(path.resolve(second ?? path.join(SRC, "../dist"))).href);
else showTree(first ?? SRC);
