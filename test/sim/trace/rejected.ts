import { copy } from "../../lab/model/search.js";
import type { Step } from "../../lab/model/step.js";
import { nextSteps } from "../../lab/model/steps.js";
import { type Caller, watches, type World } from "../../lab/model/world.js";
import { isActive } from "./session/world-of.js";

/** A step of a run that is possible in none of the states that the trace leaves. */
export class Rejected extends Error {
  override readonly name = "Rejected";

  constructor(
    readonly what: string,
    states: readonly World[],
  ) {
    super([`the protocol has no such step: ${what}`, ...states.slice(0, 3).flatMap(describe)].join("\n"));
  }
}

function describe(world: World, n: number): string[] {
  const { client } = world.sessions[0]!;
  const callers = world.callers.filter(isActive).map((caller) => `    ${caller.label} ${stateOf(caller)}`);
  const allowed = [...new Set(nextSteps(world).flatMap((step) => saidBy(world, step)))];
  return [
    `  state ${n + 1}: the session is ${client}, etcd is at revision ${world.revision}`,
    ...callers,
    `    the model would allow: ${allowed.slice(0, 12).join(" | ") || "nothing"}`,
  ];
}

/** Accidents and delays, which the model allows in nearly every state. */
const IDLE = / proxy |lagging member|by hand|watches move|process stops|do not get through|is late:/;

function saidBy(world: World, step: Step): string[] {
  const next = copy(world);
  step.run(next);
  const [first] = next.said;
  return first === undefined || IDLE.test(first) ? [] : [first];
}

function stateOf({ state, place }: Caller): string {
  const at = place && place.revision > 0 ? `, created at ${place.revision}` : "";
  if (state.at !== "waiting") return `is ${state.at}${at}`;
  const { predecessor, verified, deleted } = state;
  const facts = [
    predecessor
      ? `behind ${predecessor.key}${predecessor.holder ? ", which holds" : ""}`
      : "behind no known place",
    ...(watches(state) ? [] : ["its watches are not created"]),
    verified ? "verified by a read" : "not verified by a read",
    ...(deleted ? ["the deletion was received"] : []),
  ];
  return `is waiting${at}: ${facts.join(", ")}`;
}
