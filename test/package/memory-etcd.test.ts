// memoryEtcd() of the built package: it and the library are different files, each of two kinds.
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const RUN_MS = 20_000;

beforeAll(() => {
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.js")], { timeout: 120_000 });
}, 130_000);

/** `library` and `testing` are expressions. */
const program = (library: string, testing: string): string => `
import { createRequire } from "node:module";
import { mock } from "node:test";
const require = createRequire(${JSON.stringify(path.join(ROOT, "package.json"))});
const { connect, LockLostError, Mutex } = ${library};
const { memoryEtcd } = ${testing};
mock.timers.enable({ apis: ["setTimeout", "setInterval", "setImmediate", "Date"] });
const etcd = await memoryEtcd({ time: "virtual", members: 3 });
const cluster = connect({ hosts: etcd.hosts });
const lock = await new Mutex(cluster, "a").lock();
await etcd.expire(await cluster.session());
await etcd.advance(20_000);
const { reason } = lock.signal;
await etcd.refuse("quota");
const refused = await new Mutex(cluster, "b").lock().catch((error) => error.code);
await etcd.refuse("nothing");
await etcd.client(cluster).crash();
console.log(reason instanceof LockLostError, reason.loss, refused, await etcd.isQuiet());
`;

const file = (name: string): string => JSON.stringify(`./dist/${name}`);
const MODULE = (name: string): string => `await import(${file(`${name}.js`)})`;
const COMMON = (name: string): string => `require(${file(`${name}.cjs`)})`;

describe("the built package", () => {
  it.each([
    ["an ES module", "an ES module", MODULE, MODULE],
    ["an ES module", "CommonJS", MODULE, COMMON],
    ["CommonJS", "an ES module", COMMON, MODULE],
    ["CommonJS", "CommonJS", COMMON, COMMON],
  ])(
    "as %s reaches memoryEtcd() of %s, also under the mock timers of node:test",
    (...[, , library, testing]) => {
      const code = program(library("leasehold"), testing("leasehold-testing"));
      const args = ["--no-warnings", "--input-type=module", "--eval", code];
      const { stdout, stderr } = spawnSync(process.execPath, args, {
        cwd: ROOT,
        encoding: "utf8",
        timeout: RUN_MS,
      });
      expect([stdout, stderr]).toEqual(["true revoked ETCD_REFUSED true\n", ""]);
    },
  );

  it("starts etcds of different names, though two copies of it do", () => {
    const code = `import { createRequire } from "node:module";
      const require = createRequire(${JSON.stringify(path.join(ROOT, "package.json"))});
      const copies = [${MODULE("leasehold-testing")}, ${COMMON("leasehold-testing")}];
      const etcds = await Promise.all(copies.map(({ memoryEtcd }) => memoryEtcd({ members: 3, seed: 1 })));
      console.log(new Set(etcds.flatMap(({ hosts }) => hosts)).size);`;
    const args = ["--no-warnings", "--input-type=module", "--eval", code];
    expect(spawnSync(process.execPath, args, { cwd: ROOT, encoding: "utf8", timeout: RUN_MS }).stdout).toBe(
      "6\n",
    );
  });

  it("has nothing of this etcd in the files of the library", () => {
    for (const name of ["leasehold.js", "leasehold-core.js", "leasehold.cjs"])
      expect(readFileSync(path.join(ROOT, "dist", name), "utf8")).not.toMatch(/SimEtcd|RaftNode|EventQueue/);
  });
});
