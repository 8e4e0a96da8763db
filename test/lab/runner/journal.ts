import { existsSync, readFileSync, writeSync } from "node:fs";
import path from "node:path";
import { splitEvents } from "./delay-keys.js";
import type { Run, Step } from "./history.js";

/** Fields that are bigints in memory and decimal strings in the file. */
const BIG = new Set(["t", "tSeen", "token", "rev", "create"]);

/** Monotonic; the same clock in every process on this machine. */
export const now = () => process.hrtime.bigint();

/** Appends one line. Synchronous, so that a kill -9 between two steps keeps the first. */
export function record(fd: number, step: object): void {
  const text = JSON.stringify(step, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  writeSync(fd, `${text}\n`);
}

/** The lines of a journal, without a last one that a kill -9 cut short. */
export function readJournal(file: string): Step[] {
  const text = readFileSync(file, "utf8");
  const lines = text.slice(0, text.lastIndexOf("\n") + 1).split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line, revive) as Step);
}

function revive(name: string, value: unknown): unknown {
  if (name === "took") return (value as string[]).map(BigInt);
  return BIG.has(name) ? BigInt(value as string) : value;
}

/** Reads what `keep` left in a folder. */
export function readRun(folder: string): Run {
  const workers = Array.from({ length: 100 }, (_, n) => path.join(folder, `w${n}.jsonl`));
  const files = [...workers, path.join(folder, "run.jsonl")];
  const history = files.flatMap((file) => (existsSync(file) ? readJournal(file) : []));
  return {
    history: history.sort((a, b) => Number(a.t - b.t)),
    ...splitEvents(readJournal(path.join(folder, "server.jsonl")) as unknown as Run["server"]),
    setting: JSON.parse(readFileSync(path.join(folder, "setting.json"), "utf8")) as Run["setting"],
  };
}
