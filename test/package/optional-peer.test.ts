// The built package without its optional peer dependency.
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const RUN_MS = 20_000;
const LIBRARY = ["dist/leasehold.js", "dist/leasehold-core.js"];

/** A project with the package as it is packed, and nothing else. */
let project: string;

beforeAll(() => {
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.js")], { timeout: 120_000 });
  project = mkdtempSync(path.join(os.tmpdir(), "leasehold-peer-"));
  const folder = path.join(project, "node_modules/leasehold");
  mkdirSync(path.join(folder, "dist"), { recursive: true });
  for (const file of ["package.json", ...LIBRARY, "dist/leasehold-otel.js"])
    cpSync(path.join(ROOT, file), path.join(folder, file));
}, 130_000);
afterAll(() => rmSync(project, { recursive: true, force: true }));

function run(code: string): { status: number | null; stdout: string; stderr: string } {
  const args = ["--input-type=module", "--eval", code];
  return spawnSync(process.execPath, args, { cwd: project, encoding: "utf8", timeout: RUN_MS });
}

describe("where @opentelemetry/api is not installed", () => {
  it("`leasehold` is not affected, and never looks for it", () => {
    for (const file of LIBRARY)
      expect(readFileSync(path.join(ROOT, file), "utf8")).not.toContain("opentelemetry");
    expect(run(`import { Mutex } from "leasehold"; console.log(Mutex.name);`)).toMatchObject({
      ...{ status: 0, stdout: "Mutex\n", stderr: "" },
    });
  });

  it("`leasehold/otel` fails with Node's own error, which names it", () => {
    const { status, stderr } = run(`import "leasehold/otel";`);

    expect(status).toBe(1);
    expect(stderr).toContain("ERR_MODULE_NOT_FOUND");
    expect(stderr).toContain("Cannot find package '@opentelemetry/api' imported from");
  });
});

describe("where it is installed", () => {
  it("`leasehold/otel` is loaded, and exports one function", () => {
    const scope = path.join(project, "node_modules/@opentelemetry");
    mkdirSync(scope);
    symlinkSync(path.join(ROOT, "node_modules/@opentelemetry/api"), path.join(scope, "api"), "dir");

    const { stdout, stderr } = run(
      `import * as otel from "leasehold/otel"; otel.instrument().disable(); console.log(Object.keys(otel));`,
    );

    expect({ stdout, stderr }).toEqual({ stdout: "[ 'instrument' ]\n", stderr: "" });
  });
});
