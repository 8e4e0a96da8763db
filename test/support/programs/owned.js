// The processes that tests start: none outlives its test, nor the process that runs the tests, however that ends.
import { mkdtempSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { Guardian } from "../servers/guarded.js";
import { atEndOfTest } from "./test-end.js";
/** @import { ChildProcess } from "node:child_process" */

/** One for all processes that this one starts. @type {Guardian | undefined} */
let guardian;

/** Its leader may have ended before the rest of it. @param {number} pid */
function killGroup(pid) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // All of it has ended.
  }
}

/**
 * Ends the program with the test that has started it; with its file if that test runs beside others.
 * @template {ChildProcess} Child
 * @param {Child} child
 * @param {{ group?: boolean }} [options] group: it was started detached, and its process group ends with it
 * @returns {Child}
 */
export function owned(child, { group = false } = {}) {
  const { pid } = child;
  // It could not be started.
  if (pid === undefined) return child;
  const target = group ? -pid : pid;
  const told = (guardian ??= new Guardian(mkdtempSync(path.join(os.tmpdir(), "leasehold-owned-"))));
  told.tell(`+${target}`);
  /** @type {Promise<void>} */
  const exited = new Promise((resolve) => child.once("exit", () => resolve(told.tell(`-${target}`))));
  atEndOfTest(async () => {
    if (group) killGroup(pid);
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.ref();
    process.kill(target, "SIGKILL");
    await exited;
  });
  return child;
}
