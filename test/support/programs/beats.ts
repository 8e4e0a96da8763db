import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("beats.pl", import.meta.url));

/** Writes the time to `file` in two processes, for `ms` or until they are killed. */
export const beats = (file: string, label: string, ms?: number): string[] => [
  ...["perl", PROGRAM, file, label],
  ...(ms === undefined ? [] : [String(ms)]),
];

/** The times that the processes of each label have written, on the monotonic clock of the machine. */
export function readBeats(
  file: string,
): Map<string, { readonly pids: Set<number>; readonly times: number[] }> {
  const all = new Map<string, { readonly pids: Set<number>; readonly times: number[] }>();
  let text = "";
  try {
    text = readFileSync(file, "utf8");
  } catch {
    // Nobody has written yet.
  }
  for (const [, label = "", pid, time] of text.matchAll(/^(\w+) (\d+) ([\d.]+)\n/gm)) {
    const entry = all.get(label) ?? { pids: new Set<number>(), times: [] };
    all.set(label, entry);
    entry.pids.add(Number(pid));
    entry.times.push(Number(time));
  }
  return all;
}

/** Milliseconds from the last time of `first` to the first one of `second`; negative if they overlap. */
export function gapMs(file: string, first: string, second: string): number {
  const all = readBeats(file);
  const [before, after] = [all.get(first)?.times ?? [], all.get(second)?.times ?? []];
  return (
    after.reduce((a, b) => Math.min(a, b), Infinity) - before.reduce((a, b) => Math.max(a, b), -Infinity)
  );
}
