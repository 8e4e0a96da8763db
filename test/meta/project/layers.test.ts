// The imports of src/ against the rules between its folders: reading a file never requires the files above it.
import { describe, expect, it } from "vitest";
import { filesOf, findCycle, folderOf, importsOf } from "../../../scripts/imports.js";
import { contains, isUpward, LAYERS, layerOf } from "../../../scripts/layers.js";

const files = filesOf();
const imports = files.flatMap((file) => importsOf(file));
const inside = imports.filter(({ to }) => files.includes(to));
const arrow = ({ from, to }: { from: string; to: string }) => `${from} imports ${to}`;

describe("the layers of src/", () => {
  it("name every file, and no file or folder that is gone", () => {
    const unlisted = files.filter((file) => layerOf(file) === -1);
    const gone = LAYERS.flat().filter((name) => !files.some((file) => contains(name, file)));

    expect({ unlisted, gone }).toEqual({ unlisted: [], gone: [] });
  });

  it("are imported downwards only", () => {
    expect(inside.filter(isUpward).map(arrow)).toEqual([]);
  });

  it("have no cycle of files that load one another", () => {
    const loaded = inside.filter(({ isTypeOnly }) => !isTypeOnly);
    const edges = new Map(
      files.map((file) => [file, loaded.filter(({ from }) => from === file).map(({ to }) => to)]),
    );

    expect(findCycle(edges)).toBeUndefined();
  });

  it("load etcd3 in one file, when it is needed", () => {
    const users = (name: string) => imports.filter(({ to, isTypeOnly }) => to === name && !isTypeOnly);

    expect(users("etcd3")).toMatchObject([{ from: "etcd/etcd3/member", isLazy: true }]);
  });

  it("import nothing but one another, Node's own modules, the optional etcd3 and what is bundled", () => {
    const foreign = imports.filter(
      ({ to }) => !files.includes(to) && !/^(node:.*|etcd3|cockatiel\/.*)$/.test(to),
    );

    const others = foreign.filter(({ from }) => !["observe/otel", "testing"].includes(folderOf(from)));
    // dist/demo/, which the build makes of examples/demo.
    expect(others.map(arrow)).toEqual(["tools/cli/demo imports an expression"]);
  });

  it("import single files of cockatiel, which the bundle has, in etcd/ only", () => {
    const packages = imports.filter(({ to }) => to.startsWith("cockatiel"));

    expect(new Set(packages.map(arrow))).toEqual(
      new Set([
        "etcd/hosts imports cockatiel/dist/breaker/ConsecutiveBreaker.js",
        "etcd/retry imports cockatiel/dist/backoff/ExponentialBackoff.js",
        "etcd/retry imports cockatiel/dist/backoff/ExponentialBackoffGenerators.js",
      ]),
    );
  });

  it("load testcontainers in one file of testing/, when a container is wanted", () => {
    const packages = imports.filter(
      ({ from, to }) => folderOf(from) === "testing" && !files.includes(to) && !to.startsWith("node:"),
    );

    expect(new Set(packages.map(arrow))).toEqual(new Set(["testing/containers imports testcontainers"]));
    expect(packages.filter(({ isTypeOnly }) => !isTypeOnly)).toMatchObject([{ isLazy: true }]);
  });

  it("import the optional peer dependency in observe/otel/ only, and nothing else there", () => {
    const packages = imports.filter(
      ({ from, to }) => folderOf(from) === "observe/otel" && !files.includes(to),
    );

    expect(new Set(packages.map(({ to }) => to))).toEqual(
      new Set(["@opentelemetry/api", "node:diagnostics_channel"]),
    );
  });
});
