// The first program in README.md, bundled from the packed package into one file, which runs where nothing is installed.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { leasesOf, placesOf } from "../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { type Bundle, BUNDLERS } from "../support/fixtures/bundlers.js";
import { buildPackage } from "../support/fixtures/examples.js";
import { programOf, sectionsOf } from "../support/fixtures/pages.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const RUN_MS = 20_000;

/**
 * Imports all entries of the package, and names a transport whose package is not installed. Its tracer keeps what it gets: not
 * every bundler can join OpenTelemetry's SDK to one file, but every one can join `@opentelemetry/api`, which `leasehold/otel`
 * imports.
 */
const WHOLE = `
import { channel } from "node:diagnostics_channel";
import { connect, LockReleasedError, Mutex } from "leasehold";
import { acquireChannel, CHANNELS, holdEndChannel } from "leasehold/diagnostics";
import { instrument } from "leasehold/otel";
import { lockPage } from "leasehold/ui";
const spans = [];
const startSpan = (name, { attributes = {} }) => ({
  isRecording: () => true,
  setAttribute: (key, value) => (attributes[key] = value),
  setAttributes: (more) => Object.assign(attributes, more),
  end: () => spans.push([name, attributes]),
});
const instrumentation = instrument({ tracerProvider: { getTracer: () => ({ startSpan }) } });
const events = [];
acquireChannel.asyncEnd.subscribe(({ outcome }) => events.push(outcome));
holdEndChannel.subscribe(({ reason }) => events.push(reason));
const cluster = connect({ hosts: "", session: { owner: "bundled" } });
lockPage(cluster).close();
let fence;
await new Mutex(cluster, "bundled").withLock((lock) => (fence = String(lock.fence)));
await cluster.close();
instrumentation.disable();
const isOne =
  acquireChannel.start === channel("tracing:leasehold.acquire:start") && holdEndChannel === channel(CHANNELS.holdEnd);
console.log(JSON.stringify({ spans, events, fence, isOne }));

const overEtcd3 = connect({ hosts: "127.0.0.1:1", transport: "etcd3" });
await new Mutex(overEtcd3, "jobs").lock().catch((error) => console.log(error.message));
await overEtcd3.close();
console.log(new LockReleasedError("jobs").name);
`;

const temporary = (): string => mkdtempSync(path.join(os.tmpdir(), "leasehold-bundle-"));
const remove = (folder: string): void => rmSync(folder, { recursive: true, force: true });

let etcd: EtcdCluster;
let packed: string;
/** The package, as npm would publish it. */
let archive: string;

beforeAll(async () => {
  packed = temporary();
  buildPackage();
  const pack = ["pack", "--silent", "--ignore-scripts", "--no-update-notifier", "--pack-destination", packed];
  const name = execFileSync("npm", pack, { cwd: ROOT, encoding: "utf8", timeout: RUN_MS }).trim();
  archive = path.join(packed, name);
  etcd = await startEtcd();
}, 150_000);
afterAll(async () => {
  remove(packed);
  await etcd?.stop();
});

/** The only file in a folder, and what the bundler said about it. */
class Bundled {
  constructor(
    readonly folder: string,
    readonly warnings: readonly unknown[],
  ) {}

  run(): { status: number | null; stdout: string; stderr: string } {
    const options = { cwd: this.folder, encoding: "utf8", timeout: RUN_MS } as const;
    const { status, stdout, stderr } = spawnSync(process.execPath, ["bundle.mjs"], options);
    return { status, stdout, stderr };
  }
}

/** A project with the package and OpenTelemetry's API. etcd3 is not installed. */
class Project {
  readonly #folder = temporary();

  constructor() {
    const packages = path.join(this.#folder, "node_modules");
    mkdirSync(packages);
    mkdirSync(path.join(packages, "@opentelemetry"));
    const api = "@opentelemetry/api";
    symlinkSync(path.join(ROOT, "node_modules", api), path.join(packages, api), "dir");
    execFileSync("tar", ["-xzf", archive], { cwd: packages, timeout: RUN_MS });
    renameSync(path.join(packages, "package"), path.join(packages, "leasehold"));
  }

  /** Bundles a program into an empty folder outside the project. */
  async bundle(code: string, bundle: Bundle): Promise<Bundled> {
    const input = path.join(this.#folder, "program.mjs");
    writeFileSync(input, code);
    const folder = temporary();
    return new Bundled(folder, await bundle(input, path.join(folder, "bundle.mjs")));
  }

  [Symbol.dispose](): void {
    remove(this.#folder);
  }
}

describe.each(Object.entries(BUNDLERS))("a program bundled by %s", (_, bundle) => {
  let first: Bundled;
  let whole: Bundled;

  // The project is gone when the bundles run.
  beforeAll(async () => {
    using project = new Project();
    first = await project.bundle(programOf(sectionsOf("README.md")[0]!, etcd.endpoints), bundle);
    whole = await project.bundle(programOf({ title: "", code: WHOLE }, etcd.endpoints), bundle);
  }, 90_000);
  afterAll(() => [first, whole].forEach((each) => each && remove(each.folder)));

  test("is one file, without a warning", () => {
    for (const { folder, warnings } of [first, whole]) {
      expect(warnings).toEqual([]);
      expect(readdirSync(folder)).toEqual(["bundle.mjs"]);
    }
  });

  test("locks and releases where nothing is installed", async () => {
    const [{ revision }, leases] = await Promise.all([etcd.member.status(), leasesOf(etcd.member)]);

    const { status, stdout, stderr } = first.run();

    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toBe(`holding jobs/nightly with fencing token ${revision + 1n}\n`);
    expect(await placesOf(etcd.member, "jobs/nightly")).toEqual([]);
    expect(await leasesOf(etcd.member)).toEqual(leases);
  });

  test('has one set of channels for all entries, says what transport "etcd3" needs, and keeps the names of errors', () => {
    const { status, stdout, stderr } = whole.run();

    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const [json = "", ...lines] = stdout.split("\n");
    const { fence, ...seen } = JSON.parse(json) as { readonly fence: string };
    const attributes = { "leasehold.kind": "mutex", "leasehold.owner": "bundled", "leasehold.fence": fence };
    expect(seen).toMatchObject({
      spans: [
        ["leasehold.acquire", { ...attributes, "leasehold.outcome": "granted" }],
        ["leasehold.hold", { ...attributes, "leasehold.reason": "released" }],
      ],
      events: ["granted", "released"],
      isOne: true,
    });
    expect(Number(fence)).toBeGreaterThan(0);
    expect(lines).toEqual([
      'The transport "etcd3" needs the package etcd3: npm install etcd3',
      "LockReleasedError",
      "",
    ]);
  });
});
