// The import lines of src/ against the layers of the design: reading one file never needs the files above it.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, it } from "vitest";

const SRC = fileURLToPath(new URL("../../src/", import.meta.url));

/** Every file of src/ by layer, lowest first. A new file is added here by whoever writes it. */
const LAYERS: readonly (readonly string[])[] = [
  [
    "abort",
    "connect-options",
    "contender",
    "deadline",
    "errors",
    "fence",
    "in-flight",
    "keys",
    "once",
    "options",
    "printable",
    "retry",
    "time",
    "wait",
  ],
  ["etcd/*"],
  [
    "adopt",
    "closing",
    "cluster",
    "connection",
    "key-audit",
    "lease",
    "lease-open",
    "remove",
    "revoke",
    "session",
    "source",
    "sweep",
  ],
  [
    "acquire",
    "context",
    "gathering",
    "held-key",
    "held-places",
    "hold",
    "joiner",
    "kind",
    "long-holds",
    "multi-joiner",
    "multi-waiter",
    "own-keys",
    "own-places",
    "permit",
    "place",
    "places",
    "queue",
    "reader",
    "refused-join",
    "slow-reads",
    "turn",
    "wait-for-turn",
    "waiter",
    "with-lease",
  ],
  [
    "election",
    "leader",
    "leader-watch",
    "leadership",
    "multilock",
    "mutex",
    "observe",
    "rwlock",
    "semaphore",
  ],
  [
    "cluster-lock-manager",
    "lead",
    "web-lock-arguments",
    "web-lock-held",
    "web-lock-line",
    "web-lock-names",
    "web-lock-registry",
    "web-lock-request",
    "web-lock-snapshot",
    "web-lock-steal",
  ],
  ["index"],
];

interface Import {
  readonly from: string;
  /** A file of src/ without its extension, or the name of a package. */
  readonly to: string;
  readonly isTypeOnly: boolean;
}

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.slice(0, -3).replaceAll(path.sep, "/"));
const imports = files.flatMap(importsOf);

function importsOf(file: string): Import[] {
  const source = ts.createSourceFile(
    file,
    readFileSync(path.join(SRC, `${file}.ts`), "utf8"),
    ts.ScriptTarget.Latest,
  );
  return source.statements.flatMap((statement) => {
    if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) return [];
    const specifier = statement.moduleSpecifier;
    if (!specifier || !ts.isStringLiteral(specifier)) return [];
    return [{ from: file, to: target(file, specifier.text), isTypeOnly: isTypeOnly(statement) }];
  });
}

// `import { type A } from "./a.js"` still loads a.js, under the compiler options that we use.
function isTypeOnly(statement: ts.ImportDeclaration | ts.ExportDeclaration): boolean {
  if (ts.isExportDeclaration(statement)) return statement.isTypeOnly;
  return statement.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword;
}

function target(file: string, specifier: string): string {
  if (!specifier.startsWith(".")) return specifier;
  return path.posix.join(path.posix.dirname(file), specifier).replace(/\.js$/, "");
}

function layerOf(file: string): number {
  return LAYERS.findIndex((names) =>
    names.some((name) => name === file || name === `${path.posix.dirname(file)}/*`),
  );
}

function findCycle(edges: ReadonlyMap<string, readonly string[]>): readonly string[] | undefined {
  const done = new Set<string>();
  const visit = (file: string, trail: readonly string[]): readonly string[] | undefined => {
    if (trail.includes(file)) return [...trail.slice(trail.indexOf(file)), file];
    if (done.has(file)) return undefined;
    for (const next of edges.get(file) ?? []) {
      const cycle = visit(next, [...trail, file]);
      if (cycle) return cycle;
    }
    done.add(file);
    return undefined;
  };
  for (const file of edges.keys()) {
    const cycle = visit(file, []);
    if (cycle) return cycle;
  }
  return undefined;
}

describe("the layers of src/", () => {
  it("name every file, and no file that is gone", () => {
    const unlisted = files.filter((file) => layerOf(file) === -1);
    const gone = LAYERS.flat().filter((name) => !name.endsWith("/*") && !files.includes(name));

    expect({ unlisted, gone }).toEqual({ unlisted: [], gone: [] });
  });

  it("are imported downwards only, types too", () => {
    const upward = imports.filter(({ from, to }) => layerOf(from) !== -1 && layerOf(to) > layerOf(from));

    expect(upward.map(({ from, to }) => `${from} imports ${to}`)).toEqual([]);
  });

  it("have no cycle of files that load one another", () => {
    const loaded = imports.filter(({ isTypeOnly }) => !isTypeOnly);
    const edges = new Map(
      files.map((file) => [file, loaded.filter(({ from }) => from === file).map(({ to }) => to)]),
    );

    expect(findCycle(edges)).toBeUndefined();
  });

  it("load etcd3 in one file, and know cockatiel and etcd3's types in the etcd layer only", () => {
    const loadsEtcd3 = imports.filter(({ to, isTypeOnly }) => to === "etcd3" && !isTypeOnly);
    const above = imports.filter(
      ({ from, to }) => ["etcd3", "cockatiel"].includes(to) && !from.startsWith("etcd/"),
    );

    expect(loadsEtcd3.map(({ from }) => from)).toEqual(["etcd/member"]);
    expect(above).toEqual([]);
  });

  it("import nothing but one another, Node's own modules and the two dependencies", () => {
    const foreign = imports.filter(
      ({ to }) => !files.includes(to) && !/^(node:.*|etcd3|cockatiel)$/.test(to),
    );

    expect(foreign).toEqual([]);
  });
});

describe("the search for cycles", () => {
  it("finds a cycle that does not contain the file where it starts", () => {
    const edges = new Map([
      ["a", ["b"]],
      ["b", ["c"]],
      ["c", ["b"]],
    ]);

    expect(findCycle(edges)).toEqual(["b", "c", "b"]);
  });
});
