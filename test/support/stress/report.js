import { claimsNeverOverlap, judge, noClaimAfterDeletion, overlapsOf } from "./checker.js";
/** @import { Run } from "./history.js" */

/**
 * @typedef {object} Report
 * @property {Record<string, string[]>} violations per broken invariant
 * @property {string[]} soft what an etcd known for revoking early may cause: told, not judged
 * @property {number} overlapMs
 * @property {Record<string, number>} counts
 */

/** @param {Run} run @returns {Report} */
export function reportOf(run) {
  const crash = run.history.flatMap((step) =>
    step.k === "crash" ? [`${step.p} ${step.event}: ${step.err}`] : [],
  );
  const found = { ...judge(run), crash };
  const strict = { ...run, setting: { ...run.setting, revokesEarly: false } };
  const told = [...claimsNeverOverlap(strict), ...noClaimAfterDeletion(strict)];
  const judged = new Set([...found.I1, ...found.I9]);
  const overlap = overlapsOf(run.history).reduce((sum, { ns }) => sum + ns, 0n);
  return {
    violations: Object.fromEntries(Object.entries(found).filter(([, sentences]) => sentences.length > 0)),
    soft: told.filter((sentence) => !judged.has(sentence)),
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
