import { readFileSync } from "node:fs";

/** Seconds of CPU, and what is resident, in all and of its own, in MiB. @param {number} pid */
export function costOf(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.split(" ") ?? [];
  const kilobytes = (/** @type {string} */ file, /** @type {RegExp} */ pattern) =>
    Number(pattern.exec(readFileSync(`/proc/${pid}/${file}`, "utf8"))?.[1]) / 1024;
  return {
    cpu: (Number(fields[11]) + Number(fields[12])) / 100,
    resident: kilobytes("status", /VmRSS:\s+(\d+)/),
    own: kilobytes("smaps_rollup", /Private_Dirty:\s+(\d+)/),
  };
}
