// `npm run bench:profile -- [NAME=DIR[:TRANSPORT] ...]`: where the processor time of a lock and its release goes, in builds
// side by side; by default in this one. Prints a table for README.md.
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { markdownTable } from "../test/support/fixtures/markdown.js";
import { median } from "./report/statistics.js";

const DIST = fileURLToPath(new URL("../dist", import.meta.url));
const WORKER = fileURLToPath(new URL("worker/one-after-the-other.js", import.meta.url));
const COUNT = 4000;
const ROUNDS = 3;
const INTERVAL_MICROS = 200;
const TIMEOUT_MS = 240_000;

interface Frame {
  readonly functionName: string;
  readonly url: string;
}

interface Profile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** The first part that a frame belongs to. */
const PARTS: readonly (readonly [name: string, isIn: (frame: Frame) => boolean])[] = [
  [
    "the system: write to the socket",
    ({ functionName }) => /^write(?:Buffer|v|\w+String)$/.test(functionName),
  ],
  ["garbage collection", ({ functionName }) => functionName === "(garbage collector)"],
  ["etcd3, grpc-js, protobuf.js, cockatiel", ({ url }) => url.includes("/node_modules/")],
  ["`etcd/http2/`", ({ url }) => /\/etcd\/http2\//.test(url)],
  ["`etcd/`: batches, attempts, members", ({ url }) => url.includes("/etcd/")],
  ["locks, queues, sessions", ({ url }) => url.startsWith("file:") && !url.endsWith(path.basename(WORKER))],
  ["Node.js, V8, and the rest of the system", () => true],
];

interface Subject {
  readonly name: string;
  readonly build: string;
  readonly transport: string | undefined;
}

function subjectOf(argument: string): Subject {
  const [, name, build, transport] = /^([^=]+)=([^:]+)(?::(\w+))?$/.exec(argument) ?? [];
  if (name === undefined || build === undefined)
    throw new RangeError(`Expected NAME=DIR[:TRANSPORT], got ${argument}`);
  return { name, build: path.resolve(build), transport };
}

/** Microseconds for each lock and release: by part, of the processor in all, and by the clock. */
interface Measured {
  readonly parts: ReadonlyMap<string, number>;
  readonly cpu: number;
  readonly micros: number;
}

async function profiled({ build, transport }: Subject, host: string): Promise<Measured> {
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-profile-"));
  const entry = pathToFileURL(path.join(build, "index.js")).href;
  const worker = [WORKER, entry, host, String(COUNT), ...(transport === undefined ? [] : [transport])];
  const options = ["--cpu-prof", `--cpu-prof-dir=${folder}`, `--cpu-prof-interval=${INTERVAL_MICROS}`];
  const settings = { env: { ...process.env, NODE_OPTIONS: "" }, timeout: TIMEOUT_MS };
  const run = promisify(execFile);
  try {
    // Without the profiler, which makes system calls slower.
    const plain = await run(process.execPath, worker, settings);
    await run(process.execPath, [...options, ...worker], settings);
    const profile = JSON.parse(readFileSync(path.join(folder, readdirSync(folder)[0]!), "utf8")) as Profile;
    const { cpu, micros } = JSON.parse(plain.stdout) as { cpu: number; micros: number };
    return { cpu, micros, parts: partsOf(profile, cpu) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Divides `cpu` by the shares of the samples. */
function partsOf({ nodes, samples, timeDeltas }: Profile, cpu: number): Map<string, number> {
  const partOf = new Map(
    nodes.map(({ id, callFrame }) => [id, PARTS.find(([, isIn]) => isIn(callFrame))![0]]),
  );
  const idle = new Set(
    nodes.filter(({ callFrame }) => callFrame.functionName === "(idle)").map(({ id }) => id),
  );
  const parts = new Map(PARTS.map(([name]) => [name, 0]));
  let all = 0;
  for (const [i, id] of samples.entries()) {
    if (idle.has(id)) continue;
    const part = partOf.get(id)!;
    parts.set(part, parts.get(part)! + timeDeltas[i]!);
    all += timeDeltas[i]!;
  }
  return new Map([...parts].map(([name, sum]) => [name, (cpu * sum) / all]));
}

async function main(): Promise<void> {
  const given = process.argv.slice(2);
  const subjects = given.length > 0 ? given.map(subjectOf) : [subjectOf(`this build=${DIST}`)];
  const etcd = await startEtcd();
  const runs = new Map<Subject, Measured[]>(subjects.map((subject) => [subject, []]));
  try {
    for (let round = 0; round < ROUNDS; round++)
      for (const [subject, measured] of runs) measured.push(await profiled(subject, etcd.endpoints[0]!));
  } finally {
    await etcd.stop();
  }
  const row = (title: string, figure: (of: Measured) => number) => [
    title,
    ...[...runs.values()].map((of) => String(Math.round(median(of.map(figure))))),
  ];
  const table = markdownTable([
    ["µs for each lock and release", ...subjects.map(({ name }) => name)],
    ...PARTS.map(([name]) => row(name, ({ parts }) => parts.get(name)!)),
    row("**processor time in all**", ({ cpu }) => cpu),
    row("time by the clock", ({ micros }) => micros),
  ]);
  console.log(table.join("\n"));
}

await main();
