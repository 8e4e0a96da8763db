// Faults that hit one client. Each resolves with the function that heals it.
import type { Client } from "./client.js";
import type { Hold } from "./hold.js";
import type { Effect } from "./line.js";
import type { Stage } from "./stage.js";

const HOUR_MS = 3_600_000;

/** SIGSTOP, then SIGCONT. */
export const pause = (stage: Stage, client: Client) =>
  stage.inflict({ fault: "pause", effect: "stops", hits: [client.p] }, () => {
    client.pause();
    return () => client.resume();
  });

/** The main thread of the program stands still for so long; in Go, one goroutine computes. Healed by the end of that. */
export const block = (stage: Stage, hold: Hold, client: Client, ms: number) =>
  stage.inflict({ fault: "block", effect: "stops", hits: [client.p] }, () => {
    client.block(ms);
    const over = hold.claims();
    return async () => void (await over);
  });

/** kill -9 */
export const kill = (stage: Stage, client: Client) =>
  stage.inflict({ fault: "kill", effect: "kills", hits: [client.p] }, () => client.kill());

/** blackhole: packets vanish; refuse: connections break, and new ones are refused. */
export const cut = (stage: Stage, client: Client, mode: "blackhole" | "refuse") =>
  stage.inflict({ fault: mode, effect: "hinders", hits: [client.p] }, async () => {
    await client.links.mode(mode);
    return () => client.links.mode("pass");
  });

/** Requests arrive, answers do not; healed by breaking the connections. */
export const dropAnswers = (stage: Stage, client: Client) =>
  stage.inflict({ fault: "drop-answers", effect: "hinders", hits: [client.p] }, () => {
    client.links.drop("answers");
    return () => client.links.drop(undefined);
  });

/** Breaks the connections; new ones are accepted. */
export async function reset(stage: Stage, client: Client, effect: Effect = "hinders"): Promise<void> {
  const breakage = { fault: "reset", effect, hits: [client.p] };
  const heal = await stage.inflict(breakage, () => client.links.reset());
  await heal();
}

export const shiftClock = (stage: Stage, client: Client, hours: 1 | -1) => {
  const fault = hours > 0 ? "clock-forth" : "clock-back";
  return stage.inflict({ fault, effect: "clock", hits: [client.p] }, () => {
    client.shiftClock(hours * HOUR_MS);
    return () => client.shiftClock(-hours * HOUR_MS);
  });
};
