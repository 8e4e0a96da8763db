import type { Worker } from "../runner/crew.js";
import type { FaultKind, Field } from "../runner/ground.js";
import { brief } from "../runner/schedule.js";

type Choose = (field: Field) => Worker | undefined;

const anybody: Choose = ({ crew, random }) => random.pick(crew.workers);
const holder: Choose = (field) => oneOf(field, "holders");
const waiter: Choose = (field) => oneOf(field, "waiters");

function oneOf({ crew, observer, places, random }: Field, which: "holders" | "waiters") {
  const found = crew.seenBy(observer, places)[which];
  return found.length > 0 ? random.pick(found) : undefined;
}

/** SIGSTOP, then SIGCONT. */
const pause = (who: string, choose: Choose): FaultKind => ({
  name: `pause-${who}`,
  effect: "stops-worker",
  weight: 3,
  inflict(field) {
    const worker = choose(field);
    if (worker === undefined || worker.ended) return undefined;
    worker.pause();
    return { target: worker.p, heal: () => worker.resume() };
  },
});

/** One loop of the program, for up to four TTLs. */
const block: FaultKind = {
  name: "block-holder",
  effect: "stops-worker",
  blocks: true,
  lasts: (random, ttlMs) => random.between(0, random.chance(0.5) ? ttlMs : 4 * ttlMs),
  inflict(field) {
    const worker = holder(field);
    if (worker === undefined || worker.ended) return undefined;
    worker.block();
    return { target: worker.p, heal: () => worker.unblock() };
  },
};

/** SIGKILL; a new process takes its place. */
const kill = (who: string, choose: Choose): FaultKind => ({
  name: `kill-${who}`,
  effect: "kills-worker",
  lasts: (random) => random.between(0, 300),
  async inflict(field) {
    const worker = choose(field);
    if (worker === undefined) return undefined;
    const target = worker.p;
    await worker.kill();
    return { target, heal: () => worker.restart() };
  },
});

const HOUR_MS = 3_600_000;

/** The wall clock of one process, moved as NTP or an administrator may move it. */
const jump = (name: string, hours: number): FaultKind => ({
  name,
  effect: "moves-clock",
  lasts: brief,
  inflict(field) {
    const worker = anybody(field);
    if (worker === undefined) return undefined;
    worker.shiftClock(hours * HOUR_MS);
    return { target: worker.p, heal: () => worker.shiftClock(-hours * HOUR_MS) };
  },
});

export const workerFaults: readonly FaultKind[] = [
  pause("worker", anybody),
  pause("holder", holder),
  pause("waiter", waiter),
  kill("holder", holder),
  kill("waiter", waiter),
  jump("clock-forth", 1),
  jump("clock-back", -1),
  block,
];
