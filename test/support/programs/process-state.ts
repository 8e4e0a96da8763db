import { readFileSync } from "node:fs";

/** Whether a process runs. One that has ended and was not reaped yet does not. */
export function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

/** The numbers after `word` in a text, such as `pid 12 13`. */
export const pidsIn = (text: string): number[] =>
  [...(/pid ([\d ]+)\n/.exec(text)?.[1] ?? "").matchAll(/\d+/g)].map(([digits]) => Number(digits));

/** A script that prints `pid`, its own number and that of a grandchild in its group, and ignores what can be ignored. */
export const STUBBORN = `trap '' TERM INT HUP; sleep 1000 & echo pid $$ $!; while :; do sleep 1; done`;
