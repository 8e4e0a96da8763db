// `node type-check.cjs TYPESCRIPT`: compiles the files of this folder with each setting. Exits with code 1 on an error of any.
// @ts-nocheck -- it runs with seven versions of TypeScript
const fs = require("node:fs");
const path = require("node:path");
const ts = require(path.resolve("node_modules", process.argv[2]));

const { ModuleKind, ModuleResolutionKind } = ts;
const SETTINGS = {
  node16: { module: ModuleKind.Node16, moduleResolution: ModuleResolutionKind.Node16 },
  nodenext: { module: ModuleKind.NodeNext, moduleResolution: ModuleResolutionKind.NodeNext },
  bundler: { module: ModuleKind.ESNext, moduleResolution: ModuleResolutionKind.Bundler },
};
const libraries = new Map();
const problems = [];

for (const [name, modules] of Object.entries(SETTINGS)) {
  // ECMAScript modules alone: a bundler has no require().
  const files = fs
    .readdirSync(".")
    .filter((file) => file.endsWith(".ts") || (file.endsWith(".cts") && name !== "bundler"));
  // What `skipLibCheck: true` reports, `false` reports too.
  const found = errorsOf(files, { ...modules, skipLibCheck: false });
  problems.push(...found.map((error) => `${name}: ${error}`));
}
console.log(problems.slice(0, 20).join("\n") || `TypeScript ${ts.version}`);
process.exitCode = problems.length > 0 ? 1 : 0;

function errorsOf(files, setting) {
  const options = {
    ...setting,
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
    types: ["node"],
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
  };
  const host = ts.createCompilerHost(options);
  const read = host.getSourceFile;
  host.getSourceFile = (file, ...how) => {
    if (!/\/lib\.[\w.]+\.d\.ts$/.test(file)) return read(file, ...how);
    if (!libraries.has(file)) libraries.set(file, read(file, ...how));
    return libraries.get(file);
  };
  const program = ts.createProgram(files, options, host);
  return ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) => {
    const line = file ? file.getLineAndCharacterOfPosition(start).line + 1 : 0;
    const where = file ? `${path.relative(".", file.fileName)}:${line}: ` : "";
    return `${where}${ts.flattenDiagnosticMessageText(messageText, " ")}`;
  });
}
