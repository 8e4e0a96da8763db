// `node scripts/ready.js scripts/bundled.js SCRIPT [ARGS]`: bundles a program in TypeScript and runs it in this process. A program
// that runs for minutes is faster so than under tsx, which defines a name on each function whenever it is created.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const [script = "", ...args] = process.argv.slice(2);
const entry = path.resolve(script);
const name = createHash("sha256").update(entry).digest("hex").slice(0, 16);
const outfile = path.join(ROOT, "node_modules", ".cache", "leasehold", `${name}-${process.pid}.mjs`);

/** Each file keeps its own URL: programs find other files by it. */
const keepUrls = {
  name: "import.meta.url",
  /** @param {import("esbuild").PluginBuild} build */
  setup(build) {
    build.onLoad({ filter: /\.[jt]s$/ }, async ({ path: file }) => {
      const text = await readFile(file, "utf8");
      const contents = text.replaceAll("import.meta.url", JSON.stringify(pathToFileURL(file).href));
      return { contents, loader: file.endsWith(".ts") ? "ts" : "js" };
    });
  },
};

await build({
  ...{ entryPoints: [entry], outfile, bundle: true, packages: "external", plugins: [keepUrls] },
  ...{ platform: "node", format: "esm", target: "node20", logLevel: "error" },
  // Replaces `...{ a, b }` in an object literal with its properties: V8 copies a spread object slowly.
  minifySyntax: true,
  inject: [path.join(ROOT, "test/sim/kernel/weak-map.ts")],
});
process.argv.splice(1, process.argv.length, entry, ...args);
process.once("exit", () => rmSync(outfile, { force: true }));
// Node.js ignores SIGPIPE: without this, `| head` would end the program with the stack trace of an uncaught error.
process.stdout.on("error", (error) => {
  if (!("code" in error) || error.code !== "EPIPE") throw error;
  process.exit(128 + os.constants.signals.SIGPIPE);
});
await import(pathToFileURL(outfile).href);
