// What a user of the package gets: the built files, not the sources.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { beforeAll, describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const DIST = path.join(ROOT, "dist");

const USER = `
import { connect, LockLostError, Mutex, Session, type Hold, type Lock } from "leasehold";

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
});

/** Every .d.ts that a user's compiler reads, with the module names in it. */
function declarations(): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const toRead = [path.join(DIST, "index.d.ts")];
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
    const others = readFileSync(path.join(DIST, "leasehold.js"), "utf8").match(/[^\0-\xff]/g);
    expect(others).toBeNull();
  });

  it("has declarations that import nothing but each other", () => {
    const foreign = [...declarations()].flatMap(([file, names]) =>
      names.filter((name) => !name.startsWith(".")).map((name) => `${path.relative(DIST, file)}: ${name}`),
    );

    expect(foreign).toEqual([]);
  });

  it("has every declaration that its declarations import", () => {
    const missing = [...declarations().keys()].filter((file) => !existsSync(file));

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

  it.each([{ exactOptionalPropertyTypes: true }, { exactOptionalPropertyTypes: false }])(
    "type-checks in a strict program with %o, its declarations included",
    (setting) => {
      const errors = errorsOf(USER, {
        ...setting,
        module: ts.ModuleKind.NodeNext,
        target: ts.ScriptTarget.ES2022,
        lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
        types: ["node"],
        strict: true,
        noEmit: true,
        skipLibCheck: false,
      });

      expect(errors).toEqual([]);
    },
    60_000,
  );
});
