// `npm run fuzz`: long runs of the random tests of the transport and its codec, each file in a process of its own. Prints what
// they have fed. Fails if a test fails, a call has no end, memory grows, or less was fed than promised.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { runVitest } from "./vitest-run.js";

/** @typedef {import("../test/support/fixtures/fuzz-tally.ts").FuzzCounts} Counts */
/** @typedef {{ measurements: number, heap: number, rss: number }} Memory in bytes: how much the greatest has grown */
/** @typedef {{ file: string, code: number, counts: Counts, memory: Memory }} Result */

/** `inputs`: for each test of the file. */
const FILES = [
  { file: "test/unit/etcd/http2/fuzz-streams.test.ts", inputs: 1_800 },
  { file: "test/unit/etcd/http2/fuzz.test.ts", inputs: 12_000 },
  { file: "test/unit/etcd/http2/frames/fuzz-bytes.test.ts", inputs: 100_000 },
  { file: "test/unit/etcd/http2/fuzz-codec.test.ts", inputs: 15_000 },
];
/** @type {Counts} */
const PROMISED = { frames: 1_000_000, splittings: 10_000, messages: 100_000 };
const MIB = 2 ** 20;
/** How far memory may grow: what is in use after a garbage collection, and the process. */
const MOST = { heap: 16 * MIB, rss: 128 * MIB };

/** @type {Readonly<Record<keyof Counts, string>>} */
const NAMES = {
  frames: "frames",
  splittings: "splittings",
  connections: "connections",
  calls: "calls",
  over: "ended or canceled",
  headers: "header blocks",
  messages: "messages compared with etcd3",
  broken: "broken messages",
};

/** @param {string} folder @param {typeof FILES[number]} what @returns {Promise<Result>} */
async function run(folder, { file, inputs }) {
  const to = path.join(folder, "tally.json");
  rmSync(to, { force: true });
  const env = { LEASEHOLD_FUZZ: `${inputs}`, LEASEHOLD_FUZZ_TALLY: to };
  const code = await runVitest([file], { env });
  return { file, code, ...JSON.parse(readFileSync(to, "utf8")) };
}

/** @param {readonly Result[]} results @returns {Counts} */
function sum(results) {
  /** @type {Counts} */
  const total = {};
  for (const { counts } of results)
    for (const name of keys(counts)) total[name] = (total[name] ?? 0) + (counts[name] ?? 0);
  return total;
}

/** @param {Counts} counts */
const keys = (counts) => /** @type {(keyof Counts)[]} */ (Object.keys(NAMES)).filter((name) => counts[name]);

/** @param {Counts} counts */
const shownCounts = (counts) =>
  keys(counts)
    .map((name) => `${counts[name]?.toLocaleString("en")} ${NAMES[name]}`)
    .join(", ");

/** @param {number} bytes */
const mib = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;

/** @param {Result} result @returns {string[]} */
function faultsOf({ file, code, counts, memory }) {
  const without = (counts.calls ?? 0) - (counts.over ?? 0);
  const faults = [
    ...(code === 0 ? [] : ["a test failed, see above"]),
    ...(without > 0 ? [`${without} calls without an end`] : []),
    ...(memory.heap > MOST.heap ? [`the heap grew by ${mib(memory.heap)}`] : []),
    ...(memory.rss > MOST.rss ? [`the process grew by ${mib(memory.rss)}`] : []),
  ];
  return faults.map((fault) => `${file}: ${fault}`);
}

const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-fuzz-"));
/** @type {Result[]} */
const results = [];
try {
  for (const what of FILES) results.push(await run(folder, what));
} finally {
  rmSync(folder, { recursive: true });
}
for (const { file, counts, memory } of results) {
  console.log(`${file}: ${shownCounts(counts)}`);
  console.log(
    `  growth in ${memory.measurements} measurements: ${mib(memory.heap)} heap, ${mib(memory.rss)} RSS`,
  );
}
const total = sum(results);
console.log(`in all: ${shownCounts(total)}`);
const tooFew = keys(PROMISED).filter((name) => (total[name] ?? 0) < (PROMISED[name] ?? 0));
const faults = [
  ...results.flatMap(faultsOf),
  ...tooFew.map((name) => `fewer than ${PROMISED[name]?.toLocaleString("en")} ${NAMES[name]}`),
];
for (const fault of faults) console.log(`FAILED: ${fault}`);
if (faults.length > 0) process.exitCode = 1;
