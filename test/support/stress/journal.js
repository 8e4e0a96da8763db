import { readFileSync, writeSync } from "node:fs";

/** Fields that are bigints in memory and decimal strings in the file. */
const BIG = new Set(["t", "tSeen", "token", "rev", "create"]);

/** Monotonic, and the same clock in every process of this machine. */
export const now = () => process.hrtime.bigint();

/**
 * Appends one line. Synchronous, so that a kill -9 between two steps keeps the first.
 * @param {number} fd
 * @param {object} step
 */
export function record(fd, step) {
  writeSync(
    fd,
    `${JSON.stringify(step, (_, value) => (typeof value === "bigint" ? String(value) : value))}\n`,
  );
}

/**
 * @param {string} file
 * @returns {any[]} its lines, without a last one that a kill -9 cut short
 */
export function readJournal(file) {
  const text = readFileSync(file, "utf8");
  return text
    .slice(0, text.lastIndexOf("\n") + 1)
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line, (name, value) => (BIG.has(name) ? BigInt(value) : value)));
}
