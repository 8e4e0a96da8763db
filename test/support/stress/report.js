import { judge, overlapsOf } from "./checker.js";
/** @import { Run } from "./history.js" */

/**
 * @typedef {object} Report
 * @property {Record<string, string[]>} violations per broken invariant
 * @property {string[]} soft what an etcd known for revoking early may cause: told, not judged
 * @property {number} overlapMs
 * @property {Record<string, number>} counts
 */

/** @param {Run} run @param {boolean} mayRevokeEarly @returns {Report} */
export function reportOf(run, mayRevokeEarly) {
  const crashes = run.history.flatMap((step) =>
    step.k === "crash" ? [`${step.p} ${step.event}: ${step.err}`] : [],
  );
  const found = Object.entries({ ...judge(run), crash: crashes }).filter(
    ([, sentences]) => sentences.length > 0,
  );
  const isSoft = (/** @type {string} */ label) => mayRevokeEarly && (label === "I1" || label === "I9");
  const overlap = overlapsOf(run.history).reduce((sum, { ns }) => sum + ns, 0n);
  return {
    violations: Object.fromEntries(found.filter(([label]) => !isSoft(label))),
    soft: found
      .filter(([label]) => isSoft(label))
      .flatMap(([label, sentences]) => sentences.map((s) => `${label}: ${s}`)),
    overlapMs: Number(overlap) / 1e6,
    counts: countsOf(run),
  };
}

/** @param {Run} run */
function countsOf({ history, server }) {
  /** @type {Record<string, number>} */
  const counts = { revisions: server.length };
  for (const step of history) {
    const what = "f" in step ? `${step.f} ${step.k}` : step.k === "nemesis" ? `${step.fault}` : step.k;
    if (step.k === "nemesis" && !step.on) continue;
    counts[what] = (counts[what] ?? 0) + 1;
  }
  return counts;
}
