// What a program loads before it has done anything, in counts: the time of a start is that of the machine.
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import module from "node:module";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { buildPackage } from "../support/fixtures/examples.js";
import { meter } from "../support/fixtures/spent.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const RUN_MS = 20_000;
const LIBRARY = ["leasehold.js", "leasehold-core.js"];
const RUN = ["cli", "cli-main", "cli-io", "cli-run", "cli-settings"].map((name) => `leasehold-${name}.js`);
/** With room for growth; who raises one sees what it costs. */
const MOST_KB = { library: 775, run: 69 };

/** Prints the modules of Node.js that cost milliseconds, and are loaded after the import and after a lock over http://. */
const LOADED = `
const loaded = () =>
  process.moduleLoadList
    .filter((name) => /^NativeModule (tls|crypto|dns|http|https|http2|zlib|readline|child_process)$/.test(name))
    .map((name) => name.split(" ")[1]);
const { connect, Mutex } = await import("./leasehold.js");
const imported = loaded();
const cluster = connect({ hosts: process.env.ETCDCTL_ENDPOINTS });
await new Mutex(cluster, "start").withLock(() => {});
await cluster.close();
console.log(JSON.stringify({ imported, locked: loaded() }));
`;

/** Prints what Node.js loads for an `import` of `node:fs` or `node:util`, to name each of their exports, and what nothing here uses. */
const NAMED = `data:text/javascript,${encodeURIComponent(`
process.on("exit", () => {
  const named = /^NativeModule internal\\/(fs\\/streams|mime|util\\/diff)$/;
  console.log(JSON.stringify(process.moduleLoadList.filter((name) => named.test(name))));
});`)}`;

let etcd: EtcdCluster;
let folder: string;

beforeAll(async () => {
  buildPackage();
  folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-start-"));
  etcd = await startEtcd();
}, 150_000);
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await etcd?.stop();
});

/** The dist/ of a package that has these files, and no others. */
function distOf(name: string, files: readonly string[]): string {
  const dist = path.join(folder, name, "dist");
  mkdirSync(dist, { recursive: true });
  cpSync(path.join(ROOT, "package.json"), path.join(folder, name, "package.json"));
  for (const file of files) cpSync(path.join(ROOT, "dist", file), path.join(dist, file));
  return dist;
}

const kbIn = (dist: string, files: readonly string[]): number =>
  files.reduce((sum, file) => sum + statSync(path.join(dist, file)).size, 0) / 1000;

/** What the program prints. */
function printed(file: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): string {
  return execFileSync(process.execPath, [file, ...args], {
    env: { ...process.env, ETCDCTL_ENDPOINTS: etcd.endpoints.join(","), ...env },
    ...{ encoding: "utf8", timeout: RUN_MS },
  });
}

describe('import "leasehold"', () => {
  test(`reads two files, of ${MOST_KB.library} kB at most, and loads TLS, cryptography and DNS of Node.js only when it needs them`, () => {
    const dist = distOf("library", LIBRARY);
    writeFileSync(path.join(dist, "program.js"), LOADED);

    expect(JSON.parse(printed(path.join(dist, "program.js"), []))).toEqual({
      imported: [],
      locked: ["crypto"],
    });
    expect(kbIn(dist, LIBRARY)).toBeLessThan(MOST_KB.library);
  });
});

describe("leasehold", () => {
  test(`run reads, beside the library, only the files of that command, of ${MOST_KB.run} kB at most`, () => {
    const dist = distOf("run", [...RUN, "leasehold-core.js"]);
    const cli = path.join(dist, "leasehold-cli.js");

    expect(printed(cli, ["run", "start", "--", "echo", "ran"])).toBe("ran\n");
    expect(kbIn(dist, RUN)).toBeLessThan(MOST_KB.run);
    rmSync(path.join(dist, "leasehold-cli-run.js"));
    expect(printed(cli, ["--version"])).toMatch(/^leasehold \d/);
  });

  test("run loads no module of Node.js only to name its exports", () => {
    const cli = path.join(ROOT, "dist/leasehold-cli.js");

    expect(printed(cli, ["run", "start", "--", "true"], { NODE_OPTIONS: `--import=${NAMED}` })).toBe("[]\n");
  });

  test("run sends five requests and opens one watch for a lock that is free", async () => {
    const spent = async (): Promise<Record<string, number>> => {
      const meterOf = await meter(etcd.member);
      printed(path.join(ROOT, "dist/leasehold-cli.js"), ["run", "start", "--", "true"]);
      return meterOf.read();
    };

    // On a busy machine a lock may take so long that its queue is watched.
    await expect
      .poll(spent, { timeout: RUN_MS })
      .toMatchObject({ LeaseGrant: 1, Txn: 2, Range: 1, LeaseRevoke: 1, Watch: 2 });
  });

  test("keeps compiled code in the user's cache, if Node.js can, and changes nothing for the command that it runs", () => {
    const cli = path.join(ROOT, "dist/leasehold-cli.js");
    const [cache, foreign] = [path.join(folder, "cache"), path.join(folder, "foreign")];
    for (const each of [cache, foreign]) mkdirSync(each);
    // Only root can give a folder away.
    if (process.getuid?.() === 0) chownSync(foreign, 65_534, 65_534);
    else rmSync(foreign, { recursive: true });
    const names = (text: string) => text.match(/^NODE_\w+/gm) ?? [];
    const given = names(
      printed("-e", ["require('child_process').execFileSync('env', { stdio: 'inherit' })"]),
    );
    const run = (env: NodeJS.ProcessEnv) => printed(cli, ["run", "start", "--", "env"], env);

    expect(names(run({ XDG_CACHE_HOME: cache }))).toEqual(given);
    expect(existsSync(path.join(cache, "leasehold/v8"))).toBe("enableCompileCache" in module);
    // Another user's folder, one that cannot be made, a path that is relative, and no home.
    for (const XDG_CACHE_HOME of [foreign, "/dev/null/cache", "cache", ""])
      expect(names(run({ XDG_CACHE_HOME, HOME: "" }))).toEqual(given);
    expect([path.join(foreign, "leasehold"), "cache"].filter((each) => existsSync(each))).toEqual([]);
    // V8 runs what it finds there.
    const open = path.join(folder, "open");
    mkdirSync(open);
    chmodSync(open, 0o777);
    expect(names(run({ XDG_CACHE_HOME: open }))).toEqual(given);
    expect(existsSync(path.join(open, "leasehold"))).toBe(false);
  });
});
