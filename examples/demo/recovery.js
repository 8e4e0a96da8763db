// @ts-check
// How long after each fault work continued.

/** @typedef {import("./history.js").Entry} Entry */
/** @typedef {{ fault: string, ms: number | undefined, limitMs: number }} Recovery */

/**
 * In TTLs. A dead or frozen holder's lease expires within one TTL, and etcd checks every 500 ms. A leader change costs
 * up to 3 s of election and restarts every lease, so that a hold lost by then is passed on another TTL later. The rest
 * is a margin for a busy machine.
 */
const LIMIT_IN_TTLS = { worker: 3, leader: 6 };

/**
 * @param {readonly Entry[]} entries by time
 * @param {number} ttlMs
 * @returns {Recovery[]}
 */
export function recoveriesOf(entries, ttlMs) {
  return entries
    .filter((entry) => entry.k === "fault")
    .map((fault) => {
      const leader = fault["fault"] === "kill-leader";
      const end = leader ? nextWrite(entries, fault) : nextHolder(entries, fault);
      return {
        fault: String(fault["fault"]),
        ms: end && (end.t - fault.t) / 1000,
        limitMs: ttlMs * (leader ? LIMIT_IN_TTLS.leader : LIMIT_IN_TTLS.worker),
      };
    });
}

/**
 * @param {readonly Entry[]} entries
 * @param {Entry} fault
 */
function nextHolder(entries, fault) {
  const fence = Number(fault["fence"]);
  return entries.find((entry) => entry.k === "held" && entry.t > fault.t && Number(entry["fence"]) > fence);
}

/**
 * Only a write that started after the fault proves that etcd works again.
 * @param {readonly Entry[]} entries
 * @param {Entry} fault
 */
function nextWrite(entries, fault) {
  return entries.find(
    (entry) => entry.k === "wrote" && entry["outcome"] === "accepted" && Number(entry["invoked"]) > fault.t,
  );
}
