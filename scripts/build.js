// `npm run build`: tsc to dist/, and its modules in one file, if the sources, or the files in dist/, have changed since. A failed
// build leaves the last good one in place. With --fresh, as before `npm pack` and `npm publish`, it builds in any case.
import { createHash } from "node:crypto";
import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const DIST = path.join(ROOT, "dist");
/** Next to dist/, not in it: it is not part of the package. */
const STAMP = path.join(ROOT, "node_modules", ".leasehold-built");

/** The module of each entry of the package, and its file there. */
const ENTRIES = {
  "index.js": "leasehold.js",
  "base/telemetry/index.js": "leasehold-diagnostics.js",
  "observe/otel/instrument.js": "leasehold-otel.js",
  "testing/start.js": "leasehold-testing.js",
  "tools/ui/lock-page.js": "leasehold-ui.js",
  "tools/cli/program.js": "leasehold-cli.js",
  "alive/guardian-program.js": "leasehold-guardian.js",
  "alive/renewal-program.js": "leasehold-renewal.js",
};

const PROGRAM = "tools/cli/program.js";
/** A process and a thread that the library starts: the less they have, the sooner they run, and the less memory they take. */
const STARTED = /** @type {const} */ (["alive/guardian-program.js", "alive/renewal-program.js"]);
/** What they share. */
const CLIENT = "leasehold-client";
const CLIENT_GROUPS = [{ name: CLIENT, test: /^(?!.*-program\.js$)/ }];
/** Whether programs import the entry. @param {string} entry */
const isImported = (entry) => entry !== PROGRAM && STARTED.every((started) => started !== entry);
/** What the program shares with the library. */
const CORE = "leasehold-core";
/** The modules that share a file of the program, by its name. Each command has another one, or shares it with its like. */
const GROUPS = [
  { name: CORE, priority: 1, test: /^(?!.*\/cli\/)/ },
  { name: "io", test: /\/cli\/(arguments|command|io)\.js$/ },
];
/** The entries that a command of the program loads. */
const USED_ENTRIES = /** @type {const} */ (["tools/ui/lock-page.js", "testing/start.js"]);

/** What runs in the browser: its files become strings in a module. */
const PAGE = path.join(ROOT, "src", "tools", "ui", "page");

/** What `leasehold demo` runs, in dist/demo/: the play, and the programs of the processes that it starts. */
const DEMO = path.join(ROOT, "examples", "demo");
const DEMO_PROGRAMS = ["play", "worker", "observer", "judge", "dev-server"];

/**
 * @param {{ fresh?: boolean }} [options] fresh: also if it seems up to date
 * @returns {Promise<void>} dist/ matches src/; exits with code 1 if it does not compile
 */
export async function build(options = {}) {
  const sources = sourcesHash();
  if (!options.fresh && isUpToDate(sources)) return;
  const fresh = path.join(ROOT, `dist-${process.pid}`);
  try {
    await compile(fresh);
    await writeAssets(fresh);
    await bundle(fresh);
    await bundleDemo(fresh);
    await declareCommonJs(fresh);
    replace(fresh);
    writeFileSync(STAMP, stampOf(sources));
  } catch (error) {
    console.error(`The build failed.\n${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  if (process.exitCode === 1) process.exit();
}

/** @param {string} outDir */
function compile(outDir) {
  const tsc = path.join(ROOT, "node_modules", "typescript", "bin", "tsc");
  const args = [tsc, "-p", path.join(ROOT, "tsconfig.json"), "--outDir", outDir, "--noEmitOnError"];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { cwd: ROOT, timeout: 120_000 }, (error, stdout, stderr) => {
      if (error) reject(new Error(`${stdout}${stderr}` || error.message));
      else resolve(undefined);
    });
  });
}

/**
 * The page in place of the empty one of src/tools/ui/assets.ts.
 * @param {string} outDir
 */
async function writeAssets(outDir) {
  const [html, css] = ["index.html", "page.css"].map((file) => readFileSync(path.join(PAGE, file), "utf8"));
  const { rolldown } = await import("rolldown");
  const modules = await rolldown({
    input: path.join(PAGE, "main.ts"),
    platform: "browser",
    tsconfig: path.join(ROOT, "tsconfig.page.json"),
    resolve: { extensionAlias: { ".js": [".ts"] } },
  });
  try {
    const { output } = await modules.generate({ format: "iife", minify: true });
    const assets = { html, css, js: output[0].code };
    const code = `export const ASSETS = ${JSON.stringify(assets)};\n`;
    writeFileSync(path.join(outDir, "tools", "ui", "assets.js"), latin1(code));
  } finally {
    await modules.close();
  }
}

/**
 * A cluster works only with the copy of the library that has made it: the page imports the one that its user imports. The
 * program imports the page, and the etcd for development.
 * @param {string} outDir
 */
const outside = (outDir) => ({
  name: "outside",
  /** @param {string} source @param {string | undefined} importer */
  resolveId(source, importer) {
    if (importer === undefined || !source.startsWith(".")) return null;
    const from = path.relative(outDir, importer);
    const to = path.relative(outDir, path.resolve(path.dirname(importer), source));
    if (to === "index.js" && from.startsWith("tools/ui")) return { id: "leasehold", external: true };
    const used = USED_ENTRIES.find((entry) => entry === to);
    if (used !== undefined && from.startsWith("tools/cli"))
      return { id: `./${ENTRIES[used]}`, external: true };
    return null;
  },
});

/**
 * Each entry of the package is one file: Node.js loads that several times faster than a hundred modules. Those stay beside it
 * for the tests and the bench. Entries share no file, so a module that two of them import is loaded twice: it must work then,
 * as the channels do, which Node.js finds by name. Only the program, which nothing imports, shares most of its code with the
 * library, in leasehold-core.js: the package would have it twice otherwise.
 * @param {string} outDir
 */
async function bundle(outDir) {
  await bundleEntries(outDir, ["index.js", PROGRAM], "esm");
  const entries = /** @type {(keyof typeof ENTRIES)[]} */ (Object.keys(ENTRIES));
  await bundleEntries(outDir, STARTED, "esm");
  for (const entry of entries.filter(isImported)) {
    if (entry !== "index.js") await bundleEntries(outDir, [entry], "esm");
    // Node.js, Bun, Deno and the bundlers load the ES module also for require(), so that a process has one copy. This file is
    // for loaders that cannot, such as that of Jest.
    await bundleEntries(outDir, [entry], "cjs");
  }
}

/** Packages that a user has only for what they are loaded for. */
const OPTIONAL = ["etcd3", "testcontainers"];

/**
 * Webpack, Rspack and Turbopack resolve each import() of a literal, and fail where the package is not installed: these comments leave it to
 * Node.js. Rolldown keeps no such comment.
 * @param {string} code
 */
function leaveToNode(code) {
  return OPTIONAL.reduce((left, name) => {
    const imports = new RegExp(`\\bimport\\((["'\`])${name}\\1\\)`, "g");
    return left.replace(imports, `import(/* webpackIgnore: true */ /* turbopackIgnore: true */ "${name}")`);
  }, code);
}

/** @param {readonly (keyof typeof ENTRIES)[]} entries @param {"esm" | "cjs"} format */
function groupsOf(entries, format) {
  if (format === "cjs" || entries.length === 1) return [];
  return entries.includes(PROGRAM) ? GROUPS : CLIENT_GROUPS;
}

/**
 * @param {string} outDir
 * @param {readonly (keyof typeof ENTRIES)[]} entries
 * @param {"esm" | "cjs"} format
 */
async function bundleEntries(outDir, entries, format) {
  // Imported here: this file is loaded before the packages are installed.
  const { rolldown } = await import("rolldown");
  const extension = format === "cjs" ? ".cjs" : ".js";
  const isMinified = format === "cjs" || STARTED.some((started) => entries.includes(started));
  const modules = await rolldown({
    input: Object.fromEntries(
      entries.map((entry) => [path.basename(ENTRIES[entry], ".js"), path.join(outDir, entry)]),
    ),
    cwd: outDir,
    platform: "node",
    // Node.js loads the CommonJS of cockatiel only, from the modules beside the bundle; the bundle has its ES modules.
    resolve: { alias: { "cockatiel/dist": "cockatiel/dist/esm" } },
    external: [...OPTIONAL, "@opentelemetry/api"],
    plugins: [outside(outDir)],
    // LEASEHOLD_TRANSPORT replaces a constant: see test/support/transport.js.
    optimization: { inlineConst: false },
    // No comment with the path of each module.
    experimental: { attachDebugInfo: "none" },
    onLog: (level, { message }) => {
      if (level === "warn") throw new Error(message);
    },
  });
  try {
    const { output } = await modules.generate({
      format,
      entryFileNames: `[name]${extension}`,
      chunkFileNames: ({ name }) =>
        name === CORE || name === CLIENT ? `${name}.js` : `leasehold-cli-${name}.js`,
      // Otherwise what several commands share is a file for each set of them.
      codeSplitting: { groups: groupsOf(entries, format) },
      // Names and lines stay as they are: stack traces show them. Nobody sees those of what the library starts, and the files for loaders that
      // have no ES modules are a second copy: they have to be small.
      comments: isMinified ? false : { legal: true, annotation: false, jsdoc: false },
      ...(isMinified && { minify: true }),
      // import() of an external package works in Jest's CommonJS only as require().
      dynamicImportInCjs: false,
    });
    for (const { fileName, ...chunk } of output)
      if ("code" in chunk) writeFileSync(path.join(outDir, fileName), latin1(leaveToNode(chunk.code)));
  } finally {
    await modules.close();
  }
}

/**
 * The demo uses the package by its name, as any other program does.
 * @param {string} outDir
 */
async function bundleDemo(outDir) {
  const { rolldown } = await import("rolldown");
  const modules = await rolldown({
    input: DEMO_PROGRAMS.map((name) => path.join(DEMO, `${name}.js`)),
    platform: "node",
    external: /^leasehold(\/|$)/,
    experimental: { attachDebugInfo: "none" },
  });
  try {
    const { output } = await modules.generate({
      entryFileNames: "[name].js",
      chunkFileNames: "shared.js",
      codeSplitting: { groups: [{ name: "shared", test: /./, minShareCount: 2 }] },
      comments: false,
      // Nobody reads its stack traces.
      minify: true,
    });
    mkdirSync(path.join(outDir, "demo"), { recursive: true });
    for (const { fileName, ...chunk } of output)
      if ("code" in chunk) writeFileSync(path.join(outDir, "demo", fileName), latin1(chunk.code));
  } finally {
    await modules.close();
  }
}

/** The .d.ts of each entry but the programs, by the name of its file in dist/. */
export function libraryDeclarations(folder = DIST) {
  const libraries = Object.entries(ENTRIES).filter(([entry]) => isImported(entry));
  return Object.fromEntries(
    libraries.map(([entry, file]) => [
      path.basename(file, ".js"),
      path.join(folder, entry.replace(/\.js$/, ".d.ts")),
    ]),
  );
}

/** @param {string} outDir */
async function declareCommonJs(outDir) {
  const { commonJsDeclarations } = await import("./commonjs-types.js");
  for (const [file, code] of commonJsDeclarations(Object.values(libraryDeclarations(outDir))))
    writeFileSync(file.replace(/\.d\.ts$/, ".d.cts"), code);
}

/**
 * One character beyond Latin-1 would double the memory of the whole source: V8 keeps it with two bytes for each character.
 * @param {string} code
 */
const latin1 = (code) =>
  code.replace(/[^\0-\xff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

// File by file, each by an atomic rename, obsolete outputs last: a process that loads the package meanwhile finds it
// complete.
/** @param {string} fresh */
function replace(fresh) {
  const outputs = new Set(filesIn(fresh));
  for (const file of outputs) {
    mkdirSync(path.dirname(path.join(DIST, file)), { recursive: true });
    renameSync(path.join(fresh, file), path.join(DIST, file));
  }
  for (const file of filesIn(DIST)) if (!outputs.has(file)) rmSync(path.join(DIST, file));
}

/** @param {string} sources */
function isUpToDate(sources) {
  try {
    return readFileSync(STAMP, "utf8") === stampOf(sources);
  } catch {
    // There is no stamp, or another build removes obsolete files.
    return false;
  }
}

/** Of the sources as they were before the build, and of what it has made of them. @param {string} sources */
const stampOf = (sources) => `${sources} ${hashOf(DIST, filesIn(DIST))}`;

function sourcesHash() {
  const sources = ["src", "examples/demo"].flatMap((folder) =>
    filesIn(path.join(ROOT, folder)).map((file) => path.join(folder, file)),
  );
  const others = ["tsconfig.json", "tsconfig.page.json", "package-lock.json"];
  return hashOf(ROOT, [...sources, ...others, "scripts/build.js", "scripts/commonjs-types.js"]);
}

/** @param {string} folder @param {readonly string[]} files */
function hashOf(folder, files) {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file}\0`).update(readFileSync(path.join(folder, file)));
  return hash.digest("hex");
}

/** @param {string} folder */
function filesIn(folder) {
  const entries = existsSync(folder) ? readdirSync(folder, { recursive: true, withFileTypes: true }) : [];
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

const isMain =
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url);
if (isMain) await build({ fresh: process.argv.includes("--fresh") });
