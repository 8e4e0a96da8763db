import type { RuleName } from "./rules.js";
import type { CallerSetup, Scenario } from "./scenarios.js";
import { letterOf, type Caller, type Session, type World } from "./world.js";

/** Nothing has happened yet: there is no key, every lease is alive, and no caller has requested anything. */
export function firstWorld(scenario: Scenario, without: readonly RuleName[]): World {
  const noFence = Object.fromEntries(scenario.callers.map(({ name }) => [name, 0]));
  return {
    scenario,
    without: new Set(without),
    revision: 1,
    lagging: 1,
    keys: [],
    leases: [...scenario.sessions, ...scenario.sessions.filter(({ delays }) => delays)].map(() => true),
    sessions: sessionsOf(scenario),
    callers: callersOf(scenario),
    late: [],
    granted: noFence,
    written: noFence,
    left: scenario.accidents,
    broken: undefined,
    said: [],
  };
}

const sessionsOf = ({ sessions }: Scenario): Session[] =>
  sessions.map(({ member, lease, adopts, delays }, id) => ({
    id,
    label: letterOf(id),
    lease: adopts ?? lease ?? id,
    adopts,
    adopted: [],
    client: adopts === undefined ? "running" : "not begun",
    member,
    doubted: [],
    sweeps: false,
    delayLease: delays ? sessions.length + sessions.slice(0, id).filter((each) => each.delays).length : 0,
    delaying: [],
  }));

const callersOf = ({ callers }: Scenario): Caller[] =>
  callers.map((setup, id) => {
    const isSibling = ({ session }: CallerSetup): boolean => session === setup.session;
    const number = callers.slice(0, id + 1).filter(isSibling).length;
    return {
      id,
      label: letterOf(setup.session) + (callers.filter(isSibling).length > 1 ? String(number) : ""),
      setup,
      rounds: setup.rounds,
      places: 0,
      place: undefined,
      state: { at: "idle" },
      gaveUp: false,
      tried: [],
      writing: 0,
    };
  });
