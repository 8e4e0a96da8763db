import { readdirSync, readFileSync } from "node:fs";

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

/** The processes that have `entry`, such as `NAME=value`, in the environment with which they were started. */
export function pidsWith(entry: string): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => readOf(pid, "environ").split("\0").includes(entry));
}

/** Program and arguments. */
export const commandOf = (pid: number): string => readOf(pid, "cmdline").replaceAll("\0", " ");

function readOf(pid: number, file: "environ" | "cmdline"): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}
