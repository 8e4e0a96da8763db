// When the built package loads etcd3, and what happens where etcd3 is not installed.
import { execFileSync, execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { owned } from "../support/programs/owned.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const RUN_MS = 20_000;

/**
 * Prints, as JSON, what the program passes to `tell`. `loaded()` lists the files of etcd3, cockatiel, gRPC and protobuf.js that are
 * loaded, and the .proto files that were opened.
 */
const PROGRAM = `
import fs from "node:fs";
import { createRequire, syncBuiltinESMExports } from "node:module";
const { cache } = createRequire(import.meta.url);
const opened = [];
for (const name of ["open", "openSync", "readFile", "readFileSync"]) {
  const real = fs[name];
  fs[name] = (file, ...rest) => (opened.push(String(file)), real(file, ...rest));
}
syncBuiltinESMExports();
const loaded = () => [
  ...Object.keys(cache).filter((file) => /[\\\\/](etcd3|cockatiel|@grpc|protobufjs)[\\\\/]/.test(file)),
  ...opened.filter((file) => file.endsWith(".proto")),
];
const tell = (value) => console.log(JSON.stringify(value));
const failed = (promise) => promise.then(() => "nothing", ({ code, message }) => code + ": " + message);
`;
const MEMBER = `
import { systemClock as clock } from "leasehold/dist/base/util/clock.js";
import { Etcd3Member } from "leasehold/dist/etcd/etcd3/member.js";
import { checkConnect } from "leasehold/dist/base/options/connect.js";
const options = checkConnect({ hosts: "127.0.0.1:1" });
const setting = { token: () => undefined, pingMs: 6000 };
const member = new Etcd3Member("127.0.0.1:1", setting, { options, clock });
`;
const NEEDED = 'PACKAGE_MISSING: The transport "etcd3" needs the package etcd3: npm install etcd3';

/** A project with the built package, with or without etcd3. */
class Project {
  readonly #folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-lazy-"));

  constructor({ etcd3 }: { readonly etcd3: boolean }) {
    const packages = path.join(this.#folder, "node_modules");
    mkdirSync(path.join(packages, "leasehold"), { recursive: true });
    cpSync(path.join(ROOT, "dist"), path.join(packages, "leasehold/dist"), { recursive: true });
    writeFileSync(
      path.join(packages, "leasehold/package.json"),
      '{ "type": "module", "main": "dist/leasehold.js" }',
    );
    if (etcd3) symlinkSync(path.join(ROOT, "node_modules/etcd3"), path.join(packages, "etcd3"), "dir");
  }

  /** What the program tells; rejects if it does not end by itself, with exit code 0. */
  run(code: string): Promise<unknown[]> {
    writeFileSync(path.join(this.#folder, "program.mjs"), `${PROGRAM}${code}`);
    const settings = { cwd: this.#folder, timeout: RUN_MS };
    return new Promise((resolve, reject) => {
      const done = (error: Error | null, stdout: string, stderr: string) => {
        if (error) return reject(new Error(`${error.message}\n${stderr}`));
        resolve(
          stdout
            .trimEnd()
            .split("\n")
            .map((line) => JSON.parse(line) as unknown),
        );
      };
      owned(execFile(process.execPath, ["program.mjs"], settings, done));
    });
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

let project: Project;
let withoutEtcd3: Project;

beforeAll(() => {
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.js")], { timeout: 120_000 });
  project = new Project({ etcd3: true });
  withoutEtcd3 = new Project({ etcd3: false });
}, 130_000);
afterAll(() => {
  project.remove();
  withoutEtcd3.remove();
});

describe("etcd3", () => {
  it("is not loaded by `import`, nor by connect(), but with the first call", async () => {
    const [imported, connected, called] = (await project.run(`
      const { connect } = await import("leasehold");
      tell(loaded());
      const cluster = connect({ hosts: "127.0.0.1:1", transport: "etcd3" });
      tell(loaded());
      const session = failed(cluster.session({ timeoutMs: 15_000 }));
      while (!loaded().some((file) => file.endsWith(".proto"))) await new Promise((turn) => setTimeout(turn, 5));
      tell(loaded());
      await cluster.close();
      await session;
    `)) as string[][];

    expect({ imported, connected }).toEqual({ imported: [], connected: [] });
    expect(called!.filter((file) => file.includes("@grpc")).length).toBeGreaterThan(10);
    expect(called!.filter((file) => file.endsWith(".proto")).length).toBeGreaterThan(0);
  });

  it("is closed where its member was retired before it was loaded", async () => {
    const told = await project.run(`${MEMBER}
      member.retire();
      tell("retired");
    `);

    expect(told).toEqual(["retired"]);
  });

  it("that is not installed is what each call and stream ends with", async () => {
    const told = await withoutEtcd3.run(`${MEMBER}
      const limits = { timeoutMs: 5000 };
      tell(await failed(member.range({ key: "a" }, limits)));
      tell(await failed(member.authenticate("root", "secret", limits)));
      const ended = (open) => new Promise((resolve) => open({ answer: resolve, ended: resolve }));
      const told = async (open) => tell(await failed(ended(open).then((error) => Promise.reject(error))));
      await told((handlers) => member.watch(handlers));
      await told((handlers) => member.keepalive(handlers));
      member.retire();
    `);

    expect(told).toEqual([NEEDED, NEEDED, NEEDED, NEEDED]);
  });

  it("that is not installed rejects what users call, at once", async () => {
    const told = await withoutEtcd3.run(`
      const { connect, Mutex, Session, Election } = await import("leasehold");
      const cluster = connect({ hosts: ["127.0.0.1:1", "127.0.0.1:2"], transport: "etcd3" });
      tell(await failed(cluster.session()));
      tell(await failed(Session.open(cluster)));
      tell(await failed(new Mutex(cluster, "jobs").lock()));
      tell(await failed(new Election(cluster, "boss").leader()));
      await cluster.close();
    `);

    expect(told).toEqual([NEEDED, NEEDED, NEEDED, NEEDED]);
  });
});
