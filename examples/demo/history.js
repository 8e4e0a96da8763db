// @ts-check
// The recorded history: one file of JSON lines per process, in one folder.
import { appendFileSync, openSync, readFileSync, readdirSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";

/**
 * What a worker or the nemesis recorded. Fields beyond these depend on `k`.
 * @typedef {{ t: number, p: string, k: string } & Record<string, unknown>} Entry
 */
/**
 * A change in etcd, as its watch reported it.
 * @typedef {object} Change
 * @property {number} t when the observer saw it
 * @property {"PUT" | "DELETE"} type
 * @property {string} key
 * @property {number} revision the revision of this change
 * @property {number} create the key's create revision (0 for a DELETE, which does not contain it)
 * @property {string} value
 */
/**
 * @typedef {object} Run
 * @property {string} lock the lock's name: its keys are below it
 * @property {string} counter the counter's key
 * @property {number} ttlMs
 * @property {string[]} workers
 * @property {boolean} sabotage
 * @property {string[]} faults what was planned
 * @property {number} [interruptedAt]
 */
/** @typedef {{ run: Run, entries: Entry[], changes: Change[], complete: boolean }} History */

/** Microseconds of the machine's monotonic clock: comparable between the processes of one machine. */
export const now = () => Number(process.hrtime.bigint() / 1000n);

/**
 * Opens the file of one process. Every entry is written before the call returns, so that a kill -9 loses none.
 * @param {string} folder
 * @param {string} process
 */
export function openHistory(folder, process) {
  const file = openSync(join(folder, `${process}.jsonl`), "a");
  return (/** @type {Record<string, unknown>} */ entry) => {
    const stamped = { t: now(), p: process, ...entry };
    writeSync(file, `${JSON.stringify(stamped)}\n`);
    return /** @type {Entry} */ (stamped);
  };
}

/**
 * @param {string} folder
 * @param {Run} run
 */
export function writeRun(folder, run) {
  writeFileSync(join(folder, "run.json"), JSON.stringify(run));
}

/**
 * @param {string} folder
 * @param {Record<string, unknown>} change
 */
export function writeChange(folder, change) {
  appendFileSync(join(folder, "etcd.jsonl"), `${JSON.stringify(change)}\n`);
}

/**
 * @param {string} folder
 * @returns {History}
 */
export function readHistory(folder) {
  const run = /** @type {Run} */ (JSON.parse(readFileSync(join(folder, "run.json"), "utf8")));
  const files = readdirSync(folder).filter((name) => name.endsWith(".jsonl"));
  const entries = files.filter((name) => name !== "etcd.jsonl").flatMap((name) => lines(folder, name));
  const changes = files.includes("etcd.jsonl") ? lines(folder, "etcd.jsonl") : [];
  return {
    run,
    entries: /** @type {Entry[]} */ (entries).sort((a, b) => a.t - b.t),
    changes: /** @type {Change[]} */ (changes.filter((change) => "key" in change)),
    complete: changes.some((change) => "complete" in change),
  };
}

/**
 * @param {string} folder
 * @param {string} name
 * @returns {Record<string, unknown>[]}
 */
function lines(folder, name) {
  const text = readFileSync(join(folder, name), "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}
