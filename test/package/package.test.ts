// The built files, which a user gets, and not the sources: nothing else type-checks a user's program or lists what is packed.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { beforeAll, describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const DIST = path.join(ROOT, "dist");

interface Entry {
  readonly require: Readonly<Record<string, string>>;
  readonly types: string;
  readonly default: string;
}
const { exports, bin: PROGRAMS } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8")) as {
  readonly exports: Readonly<Record<string, Entry | string>>;
  readonly bin: Readonly<Record<string, string>>;
};
const ENTRIES = Object.values(exports).filter((entry) => typeof entry !== "string");

/** What the library and the program have in common. */
const CORE = "leasehold-core.js";
/** The process that `guardian: true` starts, the thread of `renewal: "worker"`, and what they share. */
const STARTED = ["leasehold-guardian.js", "leasehold-renewal.js", "leasehold-client.js"];

const importsOf = (file: string): string[] =>
  ts.preProcessFile(readFileSync(file, "utf8"), true, true).importedFiles.map(({ fileName }) => fileName);

const USER = `
import { connect, LockLostError, Mutex, Session, type Hold, type Lock } from "leasehold";
import { instrument, type Instrumentation, type InstrumentOptions } from "leasehold/otel";

const options: InstrumentOptions = { names: true, maxLabels: 10 };
{
  using instrumentation: Instrumentation = instrument(options);
  instrumentation.disable();
}
const cluster = connect({ hosts: "127.0.0.1:2379", session: { ttlSeconds: 5 } });
const mutex = new Mutex(cluster, "jobs/nightly");
export const answer: Promise<number> = mutex.withLock(async (lock: Lock) => {
  const hold: Hold = lock;
  await Promise.resolve(hold.revision);
  return 42;
});
export async function longForm(): Promise<bigint | undefined> {
  await using session = await Session.open(cluster, { timeoutMs: 1_000 });
  await using lock = await new Mutex(session, "jobs/nightly").tryLock();
  if (lock?.signal.reason instanceof LockLostError) return undefined;
  return lock?.fence;
}
`;

beforeAll(() => {
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.js")], { timeout: 120_000 });
}, 150_000);

const USER_OF_CLASSES = `import { Cluster, LeaseholdError, Session } from "leasehold";`;

const STRICT: ts.CompilerOptions = {
  module: ts.ModuleKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
  types: ["node"],
  strict: true,
  noEmit: true,
  skipLibCheck: false,
};

/** The names that each of the declaration files exports. */
function exportsOf(files: readonly string[]): string[][] {
  const paths = files.map((file) => path.join(ROOT, file));
  const program = ts.createProgram(paths, { ...STRICT, noLib: true, skipLibCheck: true });
  const checker = program.getTypeChecker();
  const modules = paths.map((file) => checker.getSymbolAtLocation(program.getSourceFile(file)!)!);
  return modules.map((module) => {
    const names = checker.getExportsOfModule(module).map(({ name }) => name);
    return names.sort();
  });
}

/** The comments in a file of dist/. */
function commentsOf(file: string): string[] {
  const code = readFileSync(path.join(DIST, file), "utf8");
  const comments = new Set<string>();
  const visit = (node: ts.Node): void => {
    const before = ts.getLeadingCommentRanges(code, node.pos) ?? [];
    const after = ts.getTrailingCommentRanges(code, node.end) ?? [];
    for (const { pos, end } of [...before, ...after]) comments.add(code.slice(pos, end));
    node.getChildren().forEach(visit);
  };
  visit(ts.createSourceFile(file, code, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS));
  return [...comments];
}

/** Every .d.ts that a user's compiler reads for these entries of the package, with the module names in it. */
function declarations(entries = ["index.d.ts", "base/telemetry/index.d.ts"]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const toRead = entries.map((file) => path.join(DIST, file));
  for (let file = toRead.pop(); file !== undefined; file = toRead.pop()) {
    if (found.has(file)) continue;
    const { importedFiles, referencedFiles, typeReferenceDirectives } = ts.preProcessFile(
      readFileSync(file, "utf8"),
    );
    const names = [...importedFiles, ...referencedFiles, ...typeReferenceDirectives].map(
      ({ fileName }) => fileName,
    );
    found.set(file, names);
    const relative = names.filter((name) => name.startsWith("."));
    toRead.push(...relative.map((name) => path.resolve(path.dirname(file), name.replace(/\.js$/, ".d.ts"))));
  }
  return found;
}

function errorsOf(source: string, options: ts.CompilerOptions): string[] {
  const file = path.join(ROOT, "test", "user-of-leasehold.ts");
  const host = ts.createCompilerHost(options);
  const disk = { ...host };
  host.fileExists = (name) => name === file || disk.fileExists(name);
  host.readFile = (name) => (name === file ? source : disk.readFile(name));
  host.getSourceFile = (name, language) =>
    name === file ? ts.createSourceFile(name, source, language) : disk.getSourceFile(name, language);
  const program = ts.createProgram([file], options, host);
  return ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
}

describe("the built package", () => {
  it("is Latin-1: with any other character, V8 keeps two bytes for each character of the source", () => {
    const others = ENTRIES.map(({ default: file }) => readFileSync(path.join(ROOT, file), "utf8"))
      .join("")
      .match(/[^\0-\xff]/g);
    expect(others).toBeNull();
  });

  it("has one file for each entry, its declarations, and files of the program that no entry imports", () => {
    const packed = readdirSync(DIST).filter((file) => file.startsWith("leasehold"));

    const libraries = ENTRIES.flatMap(({ default: file, require }) => [file, require["default"]!]);
    const entries = [...libraries, ...Object.values(PROGRAMS)].map((file) => path.basename(file));
    const ofProgram = packed.filter((file) => file.startsWith("leasehold-cli-"));
    expect([...entries, CORE, ...STARTED, ...ofProgram].sort()).toEqual(packed.sort());
    const declared = ENTRIES.flatMap(({ types, require }) => [types, require["types"]!]);
    expect(declared.filter((file) => !existsSync(path.join(ROOT, file)))).toEqual([]);
    const relative = packed.map(
      (file) => [file, importsOf(path.join(DIST, file)).filter((name) => name.startsWith("."))] as const,
    );
    const importing = relative.filter(([file, names]) => !ofProgram.includes(file) && names.length > 0);
    expect(Object.fromEntries(importing)).toEqual({
      "leasehold.js": [`./${CORE}`],
      "leasehold-cli.js": ["./leasehold-cli-main.js"],
      "leasehold-guardian.js": ["./leasehold-client.js"],
      "leasehold-renewal.js": ["./leasehold-client.js"],
    });
  });

  it("has no comment in the code that runs but licenses and words to bundlers, and keeps those of the declarations, and the names in stack traces", () => {
    const packed = readdirSync(DIST).filter((file) => file.startsWith("leasehold"));
    const others = packed.flatMap((file) =>
      commentsOf(file)
        .filter((text) => !/^\/\*!|@license|^#!|^\/\* (?:webpack|turbopack)Ignore: true \*\/$/.test(text))
        .map((text) => `${file}: ${text}`),
    );
    expect(others).toEqual([]);
    expect(readFileSync(path.join(DIST, "lock/mutex.d.ts"), "utf8")).toMatch(/\/\*\*[^]*@throws/);
    const program = `import { connect } from "./leasehold.js"; try { connect({}) } catch (error) { console.log(error.stack) }`;
    const args = ["--input-type=module", "--eval", program];
    const stack = execFileSync(process.execPath, args, { cwd: DIST, encoding: "utf8" });
    expect(stack).toMatch(/at checkConnect \(.*leasehold-core\.js:\d{3,}:\d{1,2}\)/);
  }, 60_000);

  it("gives require() the ES module wherever it can be loaded, so that a process has one copy", () => {
    for (const { require, types, default: file } of ENTRIES) {
      expect(require).toEqual({
        types: types.replace(/\.ts$/, ".cts"),
        ...{ "module-sync": file, bun: file, module: file },
        default: file.replace(/\.js$/, ".cjs"),
      });
    }
  });

  it("has the same exports for require() as for import", () => {
    const names = exportsOf(ENTRIES.map(({ types }) => types));

    expect(exportsOf(ENTRIES.map(({ require }) => require["types"]!))).toEqual(names);
    expect(names[0]).toEqual(expect.arrayContaining(["Mutex", "MultiLock", "connect"]));
  }, 60_000);

  it("has no source maps, and no comment that points to one", () => {
    const pack = ["pack", "--dry-run", "--json", "--ignore-scripts"];
    const [{ files }] = JSON.parse(
      execFileSync("npm", pack, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }),
    ) as [{ files: { path: string }[] }];
    const packed = files.map((file) => file.path);

    expect(packed).toContain("dist/leasehold.js");
    expect(packed.filter((file) => file.endsWith(".map"))).toEqual([]);
    const code = packed.filter((file) => /\.[cm]?[jt]s$/.test(file));
    const pointing = code.filter((file) =>
      /^\/\/# sourceMappingURL/m.test(readFileSync(path.join(ROOT, file), "utf8")),
    );
    expect(pointing).toEqual([]);
  });

  it("has declarations in which Session and Cluster have a private constructor", () => {
    const made = `[new Session(), new Cluster(), new LeaseholdError("x")]`;
    const errors = errorsOf(`${USER_OF_CLASSES} export const made = ${made};`, {
      ...STRICT,
      skipLibCheck: true,
    });

    expect(errors).toEqual([
      expect.stringMatching(/'Session' is private/),
      expect.stringMatching(/'Cluster' is private/),
      "Cannot create an instance of an abstract class.",
    ]);
  }, 60_000);

  it("has declarations that import nothing but each other, except for the types of Node's channels", () => {
    const foreign = [...declarations()].flatMap(([file, names]) =>
      names.filter((name) => !name.startsWith(".")).map((name) => `${path.relative(DIST, file)}: ${name}`),
    );

    expect(foreign).toEqual(["base/telemetry/channels.d.ts: node:diagnostics_channel"]);
  });

  it("has declarations of ./otel that import nothing but each other and the peer dependency", () => {
    const names = [...declarations(["observe/otel/instrument.d.ts"]).values()].flat();

    expect(new Set(names.filter((name) => !name.startsWith(".")))).toEqual(new Set(["@opentelemetry/api"]));
  });

  it("has declarations of ./ui that import nothing but each other and the types of Node's servers", () => {
    const names = [...declarations(["tools/ui/lock-page.d.ts"]).values()].flat();

    expect(new Set(names.filter((name) => !name.startsWith(".")))).toEqual(new Set(["node:http"]));
  });

  it("has declarations of ./testing that import nothing but each other and the library's", () => {
    const all = declarations(["testing/start.d.ts"]);
    const names = [...all.values()].flat().filter((name) => !name.startsWith("."));

    expect(names).toEqual([]);
    expect([...all.keys()].filter((file) => !existsSync(file))).toEqual([]);
  });

  it("has a ./testing that loads no copy of the library, and testcontainers only for an image", () => {
    const names = importsOf(path.join(DIST, "leasehold-testing.js"));

    expect(names.filter((name) => !name.startsWith("node:"))).toEqual(["testcontainers"]);
  });

  it("has one copy of the library: what ./ui needs of it, it imports by the package's name", () => {
    const names = importsOf(path.join(DIST, "leasehold-ui.js"));

    expect(names.filter((name) => !name.startsWith("node:"))).toEqual(["leasehold"]);
  });

  it("has every declaration that its declarations import", () => {
    const all = [...declarations().keys(), ...declarations(["observe/otel/instrument.d.ts"]).keys()];
    const missing = all.filter((file) => !existsSync(file));

    expect(missing).toEqual([]);
  });

  it("exports by name only", () => {
    const source = readFileSync(path.join(ROOT, "src/index.ts"), "utf8");
    const { statements } = ts.createSourceFile("index.ts", source, ts.ScriptTarget.Latest);
    const others = statements.filter(
      (statement) =>
        !(
          ts.isExportDeclaration(statement) &&
          statement.exportClause &&
          ts.isNamedExports(statement.exportClause)
        ),
    );

    expect(others.length).toBe(0);
  });

  it("type-checks in a strict program with exact optional properties, its declarations included", () => {
    expect(errorsOf(USER, { ...STRICT, exactOptionalPropertyTypes: true })).toEqual([]);
  }, 60_000);
});
