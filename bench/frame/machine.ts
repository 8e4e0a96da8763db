// The machine on which the figures were measured.
import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { median } from "../report/statistics.js";

const SYNCS = 50;
const BLOCK = Buffer.alloc(4096);
const TMPFS = 0x01021994;
/** With more than this before the bench has started, other programs are using the machine. */
const BUSY_PER_CORE = 0.25;

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
  /** Where servers keep their data. */
  readonly data: "disk" | "memory";
  /** Median time to append 4 KiB there and flush them to the disk. */
  readonly fsyncMs: number;
}

export function machine(): Machine {
  return {
    cpu: os.cpus()[0]?.model.trim() ?? "unknown",
    cores: os.availableParallelism(),
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()}`,
    node: process.versions.node,
    data: statfsSync(os.tmpdir()).type === TMPFS ? "memory" : "disk",
    fsyncMs: fsyncMs(),
  };
}

function fsyncMs(): number {
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-bench-"));
  const file = openSync(path.join(folder, "log"), "w");
  try {
    return median(
      Array.from({ length: SYNCS }, () => {
        const begun = performance.now();
        writeSync(file, BLOCK);
        fdatasyncSync(file);
        return performance.now() - begun;
      }),
    );
  } finally {
    closeSync(file);
    rmSync(folder, { recursive: true });
  }
}

/** Processes that are running or runnable, averaged over the last minute. */
export const load = () => os.loadavg()[0] ?? 0;

export const isBusy = (loadAtStart: number, cores: number) => loadAtStart > cores * BUSY_PER_CORE;
