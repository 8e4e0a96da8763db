// `node type-check.cjs TYPESCRIPT`: compiles the files of this folder with each setting. Exits with code 1 on an error of any.
// @ts-nocheck -- it runs with each version of TypeScript
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const compiler = path.resolve("node_modules", process.argv[2]);
// TypeScript 7 has no API in JavaScript, but the program.
const ts = fs.existsSync(path.join(compiler, "lib/typescript.js")) ? require(compiler) : undefined;

/** `module` of each `moduleResolution`. */
const SETTINGS = { Node16: "Node16", NodeNext: "NodeNext", Bundler: "ESNext" };
const libraries = new Map();
const problems = [];

for (const [name, module] of Object.entries(SETTINGS)) {
  // ECMAScript modules alone: a bundler has no require().
  const files = fs
    .readdirSync(".")
    .filter((file) => file.endsWith(".ts") || (file.endsWith(".cts") && name !== "Bundler"));
  // What `skipLibCheck: true` reports, `false` reports too.
  const found = (ts ? errorsOf : errorsByProgram)(files, module, name);
  problems.push(...found.map((error) => `${name}: ${error}`));
}
const { version } = require(path.join(compiler, "package.json"));
console.log(problems.slice(0, 20).join("\n") || `TypeScript ${version}`);
process.exitCode = problems.length > 0 ? 1 : 0;

function errorsByProgram(files, module, moduleResolution) {
  const modules = ["--module", module, "--moduleResolution", moduleResolution];
  const strict = ["--strict", "--exactOptionalPropertyTypes", "--types", "node"];
  const output = ["--noEmit", "--target", "ES2022", "--lib", "es2023,esnext.disposable"];
  const args = [path.join(compiler, "bin/tsc"), ...modules, ...strict, ...output, ...files];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  return status === 0 ? [] : `${stdout}${stderr}`.trim().split("\n");
}

function errorsOf(files, module, moduleResolution) {
  const options = {
    module: ts.ModuleKind[module],
    moduleResolution: ts.ModuleResolutionKind[moduleResolution],
    skipLibCheck: false,
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
