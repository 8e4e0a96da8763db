import { seeded } from "./random.js";
/** @import { Nemesis } from "./history.js" */

/**
 * @typedef {object} Fault
 * @property {number} atMs after the start of the run
 * @property {number} lastsMs
 * @property {Nemesis["fault"]} fault
 * @property {number} target number of a worker or a member; LEADER, HOLDER = whoever leads, or holds a lock, then
 */

export const LEADER = -1;
export const HOLDER = -2;

/**
 * What will be broken and when: the same for the same seed and setting.
 * @param {{ seed: string, seconds: number, members: number, workers: number, ttlSeconds: number }} setting
 * @returns {Fault[]} by time; at most one worker and one member are broken at a time
 */
export function planFaults({ seed, seconds, members, workers, ttlSeconds }) {
  const random = seeded(`${seed} faults`);
  const ttlMs = ttlSeconds * 1000;
  // The first stretch is quiet: there the bound for a wake-up is one TTL.
  const quiet = { fromMs: seconds * 200, untilMs: seconds * 1000 };
  const workerFaults = series(random, quiet, [300, 2500], () => {
    const target = random.chance(0.5) ? HOLDER : random.between(0, workers - 1);
    if (random.chance(0.4)) return { fault: "kill-worker", target, lastsMs: random.between(0, 300) };
    return { fault: "pause-worker", target, lastsMs: random.between(50, 1.8 * ttlMs) };
  });
  const memberFaults = series(random, quiet, [500, 4000], () => {
    const target = members > 1 && random.chance(0.5) ? LEADER : random.between(0, members - 1);
    const fault = random.chance(0.5) ? "kill-member" : "pause-member";
    // One member is the whole of etcd: mostly short, now and then an outage beyond the TTL.
    const outage = random.chance(members > 1 ? 0.5 : 0.25);
    return {
      fault,
      target,
      lastsMs: outage ? random.between(ttlMs, 1.5 * ttlMs) : random.between(50, ttlMs / 2),
    };
  });
  return [...workerFaults, ...memberFaults].sort((a, b) => a.atMs - b.atMs);
}

/**
 * @param {ReturnType<typeof seeded>} random
 * @param {{ fromMs: number, untilMs: number }} window
 * @param {readonly [number, number]} gap between the end of one and the start of the next
 * @param {() => Omit<Fault, "atMs">} next
 */
function series(random, { fromMs, untilMs }, gap, next) {
  /** @type {Fault[]} */
  const faults = [];
  for (let atMs = fromMs + random.between(...gap); atMs < untilMs; atMs += random.between(...gap)) {
    const fault = { atMs, ...next() };
    faults.push(fault);
    atMs += fault.lastsMs;
  }
  return faults;
}
