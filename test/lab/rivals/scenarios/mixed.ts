// A seeded run of all faults that can hit clients, with failovers.
import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../runner/random.js";
import { seeded } from "../../runner/random.js";
import type { Client } from "../client.js";
import { cut, dropAnswers, kill, pause, reset, shiftClock } from "../faults.js";
import { PREFIX } from "../grounds/ground.js";
import { within } from "../patience.js";
import { PATIENCE_MS, TTL_MS, type Stage } from "../stage.js";
import type { Scenario } from "./scenario.js";

const RUN_MS = 20_000;
const NAMES = ["n1", "n2"].map((name) => `${PREFIX}${name}`);
/** Some waiters give up. */
const ASK_MS = [500, 2 * TTL_MS] as const;

/** A client, or the client that replaced it. */
interface Seat {
  client: Client;
  holds: boolean;
}
type Strike = (stage: Stage, seat: Seat, random: Random) => Promise<() => Promise<void>>;

const STRIKES: readonly Strike[] = [
  (stage, { client }) => pause(stage, client),
  (stage, { client }) => cut(stage, client, "blackhole"),
  (stage, { client }) => cut(stage, client, "refuse"),
  (stage, { client }) => dropAnswers(stage, client),
  async (stage, { client }) => {
    await reset(stage, client);
    return async () => {};
  },
  async (stage, seat) => {
    await kill(stage, seat.client);
    return async () => void (seat.client = await stage.restart(seat.client));
  },
];
const CLOCK: Strike = (stage, { client }, random) => shiftClock(stage, client, random.chance(0.5) ? 1 : -1);

export const mixed = (seed: string): Scenario => ({
  name: "mixed",
  title: `${RUN_MS / 1000} s of all of it by seed`,
  members: 3,
  async play(stage) {
    const seats = (await stage.start()).map((client) => ({ client, holds: false }));
    const until = performance.now() + RUN_MS;
    const lanes = seats.map((seat, n) => live(stage, seat, { until, random: seeded(`${seed} lane ${n}`) }));
    await strike(stage, seats, { until, random: seeded(`${seed} strikes`) });
    await Promise.all(lanes);
  },
});

interface Span {
  readonly until: number;
  readonly random: Random;
}

/** One failover in the middle; before and after it, faults follow one after the other. */
async function strike(stage: Stage, seats: readonly Seat[], { until, random }: Span): Promise<void> {
  const strikes = stage.subject.movesClock ? [...STRIKES, CLOCK] : STRIKES;
  const middle = until - RUN_MS / 2;
  for (let failed = false; performance.now() < until;) {
    await delay(random.between(200, 800));
    if (!failed && performance.now() > middle) {
      failed = true;
      await failOver(stage);
    }
    const heal = await random.pick(strikes)(stage, victim(seats, random), random);
    await delay(random.between(0.2 * TTL_MS, 2 * TTL_MS));
    await heal();
  }
}

/** Prefers a client that holds. */
function victim(seats: readonly Seat[], random: Random): Seat {
  const holders = seats.filter(({ holds }) => holds);
  return random.pick(holders.length > 0 && random.chance(0.7) ? holders : seats);
}

async function failOver(stage: Stage): Promise<void> {
  const breakage = { fault: "failover", effect: "hinders", hits: "all" } as const;
  const heal = await stage.inflict(breakage, () => stage.ground.failOver());
  await heal();
}

/** Acquires a lock, uses it, releases it, and repeats. */
async function live(stage: Stage, seat: Seat, { until, random }: Span): Promise<void> {
  while (performance.now() < until) {
    const { client } = seat;
    const wait = stage.ask(client, { name: random.pick(NAMES), timeoutMs: random.between(...ASK_MS) });
    // A client that was hit may never get an answer; a hold that is granted after the end is served then.
    const hold = await within(until - performance.now(), wait.hold);
    if (hold !== undefined) {
      seat.holds = true;
      for (let left = random.between(1, 5); left > 0 && (await hold.increment()); left--)
        await delay(random.between(0, 100));
      seat.holds = false;
      await within(PATIENCE_MS, hold.release());
    }
    await delay(client.ended ? 100 : random.between(0, 50));
  }
}
