// @ts-check
// Which process claimed to hold the lock, and when, according to its own records.

/** @typedef {import("./history.js").Entry} Entry */
/** @typedef {{ p: string, fence: number, from: number, to: number }} Claim */

const CLAIMING = new Set(["held", "working", "claim", "done"]);

/**
 * The stretches of time in which a process claimed to hold. A stretch lasts from one record with `held: true` to the
 * next, or to the process's death if that comes next; time in SIGSTOP is excluded, because a frozen process claims
 * nothing.
 * @param {readonly Entry[]} entries by time
 * @returns {Claim[]} by start
 */
export function claimsOf(entries) {
  /** @type {Map<string, Claim>} */
  const open = new Map();
  /** @type {Claim[]} */
  const claims = [];
  for (const entry of entries) {
    const claim = open.get(subjectOf(entry));
    if (claim && continues(entry, claim)) claim.to = entry.t;
    if (isHeld(entry) && !(claim && claim.fence === entry["fence"])) claims.push(opened(entry, open));
    if (ends(entry)) open.delete(subjectOf(entry));
  }
  return claims.sort((a, b) => a.from - b.from);
}

/** @param {Entry} entry */
const isHeld = (entry) => CLAIMING.has(entry.k) && entry["held"] === true;

/** The process that an entry is about. @param {Entry} entry */
const subjectOf = (entry) => (entry.p === "nemesis" ? String(entry["target"]) : entry.p);

/**
 * Until it is killed or frozen, a process continues its last claim.
 * @param {Entry} entry
 * @param {Claim} claim
 */
function continues(entry, claim) {
  if (entry.k === "kill" || entry.k === "pause") return true;
  return isHeld(entry) && entry["fence"] === claim.fence;
}

/** @param {Entry} entry */
function ends(entry) {
  if (CLAIMING.has(entry.k) && entry["held"] === false) return true;
  return ["done", "kill", "pause", "lost", "failed", "closed"].includes(entry.k);
}

/**
 * @param {Entry} entry
 * @param {Map<string, Claim>} open
 */
function opened(entry, open) {
  const claim = { p: entry.p, fence: Number(entry["fence"]), from: entry.t, to: entry.t };
  open.set(entry.p, claim);
  return claim;
}

/**
 * @param {readonly Claim[]} claims by start
 * @returns {[Claim, Claim][]} claims of different processes at the same time
 */
export function overlapsOf(claims) {
  /** @type {[Claim, Claim][]} */
  const overlaps = [];
  claims.forEach((claim, index) => {
    for (const later of claims.slice(index + 1)) {
      if (later.from >= claim.to) break;
      if (later.p !== claim.p) overlaps.push([claim, later]);
    }
  });
  return overlaps;
}
