// CI machines are shared: a test that waits for a second process, a member of etcd or a timer may fail because the
// machine stood still. CI runs the few files that failed again, alone; a file that passes then is reported as unsteady
// and does not fail the suite.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";

/** Of three hundred. More failed files than that are not a coincidence. */
const MOST_FILES = 5;
/** Files whose schedules are drawn at random: a second run proves nothing about the first. */
const RANDOM = /random|chaos|fuzz|model|lab|once-schedulers/;

/** @typedef {readonly { file: string, tests: readonly string[] }[]} Failed */

/** @param {Failed | undefined} failed @returns {failed is Failed} whether CI may repeat what failed */
export function repeatable(failed) {
  if (failed === undefined || failed.length === 0 || failed.length > MOST_FILES) return false;
  return !failed.some(
    ({ file }) =>
      RANDOM.test(file) ||
      !/test\/(integration|interop|slow|browser|proxies|meta\/(docs|examples))\//.test(file),
  );
}

/** A file for scripts/test-reporter.js; `read` returns what it has written, and removes it. */
export function newFailures() {
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-failed-"));
  const file = path.join(folder, "failed.json");
  const read = () => {
    try {
      const { failed, unhandled } = JSON.parse(readFileSync(file, "utf8"));
      // An error outside every test belongs to no file.
      return unhandled > 0 ? undefined : /** @type {Failed} */ (failed);
    } catch {
      return undefined;
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  };
  return { path: file, read };
}
