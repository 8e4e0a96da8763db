import { readdirSync, readFileSync } from "node:fs";

/**
 * Whether all processes of the group have ended, and only their entries are left. The first process of a container often
 * reaps no orphans, so such entries stay, and a signal to the group succeeds for ever. Known on Linux only.
 */
export function hasOnlyZombies(group: number): boolean {
  try {
    const states = readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .flatMap((pid) => stateIn(group, pid));
    return states.length > 0 && states.every((state) => state === "Z" || state === "X");
  } catch {
    return false;
  }
}

/** The state of the process if it is in the group. */
function stateIn(group: number, pid: string): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name of the program, in parentheses, may contain anything.
    const [state = "", , pgrp] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return Number(pgrp) === group ? [state] : [];
  } catch {
    // It has ended since.
    return [];
  }
}
