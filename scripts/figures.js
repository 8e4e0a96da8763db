// `node scripts/figures.js [SRC]` prints the figures of src/, or of the src/ of another checkout. For an older commit:
// `git archive COMMIT src | tar -x -C DIR && node scripts/figures.js DIR/src`.
import { SRC } from "./imports.js";
import { measure } from "./measure.js";

const MOST_LINES = { file: 500, function: 40 };

/**
 * @param {string} what
 * @param {number | string} figure
 * @param {readonly string[]} [listed]
 */
function show(what, figure, listed = []) {
  console.log(
    [`${String(figure).padStart(5)}  ${what}`, ...listed.map((line) => `         ${line}`)].join("\n"),
  );
}

/** @param {import("./measure.js").Length} length */
const placed = ({ name, file, line, lines }) => `${file}.ts:${line}: ${name}, ${lines} lines`;

const tree = measure(process.argv[2] ?? SRC);
const longFiles = tree.fileLengths.filter(({ lines }) => lines > MOST_LINES.file);
const longFunctions = tree.functionLengths.filter(({ lines }) => lines > MOST_LINES.function);
const [longest] = [...tree.functionLengths].sort((a, b) => b.lines - a.lines);

show("folders", tree.folders.length);
show("files", tree.files.length);
show("imports between files", tree.imports.length);
show("import arrows between folders, with each file at the root as a folder", tree.folderArrows.length);
show("upward imports", tree.upward?.length ?? "-");
const circles = tree.circles.map((files) => `${files.length} files: ${files.join(" ")}`);
show("circles of imports, type imports included", circles.length, circles);
show("lines in the longest function", longest?.lines ?? 0, longest && [placed(longest)]);
show(`functions over ${MOST_LINES.function} lines`, longFunctions.length, longFunctions.map(placed));
show(`files over ${MOST_LINES.file} lines`, longFiles.length, longFiles.map(placed));
