import { seeded } from "./random.js";
/** @import { EtcdFault, Nemesis } from "./history.js" */

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
 * @returns {{ workers: Fault[], etcd: Fault[] }} two series, each for one after the other
 */
export function planFaults({ seed, seconds, members, workers, ttlSeconds }) {
  const random = seeded(`${seed} faults`);
  const ttlMs = ttlSeconds * 1000;
  // The first stretch is quiet: there the bound for a wake-up is one TTL.
  const window = { fromMs: seconds * 200, untilMs: seconds * 1000 };
  const short = () => random.between(50, ttlMs / 2);
  const long = () => random.between(ttlMs, 1.6 * ttlMs);
  return {
    workers: series(random, window, [200, 2000], () => {
      const target = random.chance(0.7) ? HOLDER : random.between(0, workers - 1);
      if (random.chance(0.3)) return { fault: "kill-worker", target, lastsMs: random.between(0, 300) };
      return { fault: "pause-worker", target, lastsMs: random.chance(0.6) ? long() : short() };
    }),
    etcd: series(random, window, [300, 2500], () => {
      const target = members > 1 && random.chance(0.5) ? LEADER : random.between(0, members - 1);
      const fault = random.pick(ETCD_FAULTS);
      // One member is the whole of etcd: now and then an outage beyond the TTL.
      return { fault, target, lastsMs: random.chance(members > 1 ? 0.5 : 0.2) ? long() : short() };
    }),
  };
}
/** @type {readonly EtcdFault[]} */
const ETCD_FAULTS = ["pause-member", "kill-member", "cut-link", "lose-answers", "lose-answers", "slow-link"];

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
