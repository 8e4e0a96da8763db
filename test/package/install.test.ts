// What `npm install leasehold` brings: the package is packed, and installed in an empty project, without a registry.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { buildPackage } from "../support/fixtures/examples.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const RUN_MS = 60_000;
/** With room for growth; who raises it sees what it costs. */
const MOST_KB = 920;

interface Manifest {
  readonly dependencies?: unknown;
  readonly scripts?: Readonly<Record<string, string>>;
}

let project: string;
let archive: string;

const npm = (cwd: string, ...args: string[]): string =>
  execFileSync("npm", [...args, "--no-update-notifier"], {
    ...{ cwd, encoding: "utf8", timeout: RUN_MS, stdio: ["ignore", "pipe", "inherit"] },
  });
const installed = (file: string): string => path.join(project, "node_modules", file);

/** What the program prints, in the project. */
function run(code: string): string {
  const args = ["--input-type=module", "--eval", code];
  return execFileSync(process.execPath, args, { cwd: project, encoding: "utf8", timeout: RUN_MS });
}

beforeAll(() => {
  buildPackage();
  project = mkdtempSync(path.join(os.tmpdir(), "leasehold-install-"));
  const name = npm(ROOT, "pack", "--silent", "--ignore-scripts", "--pack-destination", project).trim();
  archive = path.join(project, name);
  writeFileSync(path.join(project, "package.json"), `{ "type": "module" }`);
  npm(project, "install", "--offline", "--no-audit", "--no-fund", "--silent", archive);
}, 200_000);
afterAll(() => rmSync(project, { recursive: true, force: true }));

describe("npm install leasehold", () => {
  it("brings one package, and no script that runs then", () => {
    const lock = JSON.parse(readFileSync(installed(".package-lock.json"), "utf8")) as {
      readonly packages: Readonly<Record<string, unknown>>;
    };
    expect(Object.keys(lock.packages)).toEqual(["node_modules/leasehold"]);
    expect(JSON.stringify(lock.packages)).not.toContain("hasInstallScript");

    const manifest = JSON.parse(readFileSync(installed("leasehold/package.json"), "utf8")) as Manifest;
    expect(manifest.dependencies).toBeUndefined();
    const scripts = Object.keys(manifest.scripts ?? {});
    expect(scripts.filter((name) => /^((pre|post)?install|(pre|post)?prepare)$/.test(name))).toEqual([]);
  });

  it(`brings at most ${MOST_KB} kB, no picture and no page for contributors`, () => {
    const files = readdirSync(installed("leasehold"), { recursive: true, encoding: "utf8" });

    expect(statSync(archive).size).toBeLessThanOrEqual(MOST_KB * 1000);
    expect(
      files.filter((file) => /\.(png|map)$|conformance|architecture|^docs\/testing\.md$/.test(file)),
    ).toEqual([]);
    expect(files).toContain("docs/api.md");
  });

  it("brings each declaration that those of its entries import, and no other folder of them", () => {
    const { exports } = JSON.parse(readFileSync(installed("leasehold/package.json"), "utf8")) as {
      readonly exports: Readonly<Record<string, { readonly types?: string }>>;
    };
    const found = new Set<string>();
    const open = Object.values(exports).flatMap(({ types }) =>
      types ? [installed(`leasehold/${types}`)] : [],
    );
    for (let file = open.pop(); file !== undefined; file = open.pop()) {
      if (found.has(file)) continue;
      found.add(file);
      const { importedFiles } = ts.preProcessFile(readFileSync(file, "utf8"));
      const names = importedFiles.map(({ fileName }) => fileName).filter((name) => name.startsWith("."));
      for (const name of names) open.push(path.resolve(path.dirname(file), name.replace(/\.js$/, ".d.ts")));
    }
    const files = readdirSync(installed("leasehold/dist"), { recursive: true, encoding: "utf8" });
    const declared = files.filter((file) => file.endsWith(".d.ts"));
    const folders = (all: readonly string[]) => new Set(all.map((file) => path.dirname(file)));

    expect(folders(declared)).toEqual(
      folders([...found].map((file) => path.relative(installed("leasehold/dist"), file))),
    );
  });
});

describe("without etcd3", () => {
  it("every entry but ./otel, which is for a package, is loaded", () => {
    const entries = ["leasehold", "leasehold/diagnostics", "leasehold/testing", "leasehold/ui"];
    const code = entries.map((entry) => `import ${JSON.stringify(entry)};`).join("\n");

    expect(run(`${code} console.log("loaded");`)).toBe("loaded\n");
  });

  it('`transport: "etcd3"` rejects the first call with the line that installs it', () => {
    const said = run(`
      import { connect, isLeaseholdError, Mutex } from "leasehold";
      const cluster = connect({ hosts: "127.0.0.1:1", transport: "etcd3" });
      const error = await new Mutex(cluster, "jobs").lock().catch((reason) => reason);
      await cluster.close();
      console.log(isLeaseholdError(error, "PACKAGE_MISSING"), error.message);
    `);

    expect(said).toBe('true The transport "etcd3" needs the package etcd3: npm install etcd3\n');
  });

  it(
    "a strict program type-checks, the declarations included",
    () => {
      const file = path.join(project, "user.ts");
      writeFileSync(
        file,
        `import { connect, Mutex } from "leasehold";\nimport { lockPage } from "leasehold/ui";\n` +
          `const cluster = connect({ hosts: "127.0.0.1:2379", transport: "etcd3" });\n` +
          `export const made = [new Mutex(cluster, "jobs"), lockPage(cluster)];\n`,
      );
      const options: ts.CompilerOptions = {
        ...{ module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2022, strict: true, noEmit: true },
        lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
        ...{ types: ["node"], typeRoots: [path.join(ROOT, "node_modules/@types")], skipLibCheck: false },
      };
      const errors = ts
        .getPreEmitDiagnostics(ts.createProgram([file], options))
        .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));

      expect(errors).toEqual([]);
    },
    RUN_MS,
  );
});
