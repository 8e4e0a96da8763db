import { readdirSync, readFileSync } from "node:fs";

/** The guardians that this process has started. @param {number} parent @returns {number[]} */
export const guardiansOf = (parent) =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isGuardian(pid, parent));

/** @param {number} pid @param {number} parent */
function isGuardian(pid, parent) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const [, of] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return Number(of) === parent && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("guardian");
  } catch {
    // It has ended meanwhile.
    return false;
  }
}
