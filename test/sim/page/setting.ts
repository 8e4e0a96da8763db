import { MUTANTS } from "../../lab/mutants/table.js";
import { SUBJECTS } from "../../lab/runner/subject.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { SIM_FAULTS } from "../run/faults.js";
import type { SimOptions } from "../run/sim-run.js";
import { swarmOf } from "../run/swarm.js";
import { BadRequest, formatOrders, parseOrders, type PlacedOrder } from "./orders.js";

export const VERSIONS: readonly SimVersion[] = ["3.4", "3.5", "3.6", "3.7"];

export const MEMBERS: readonly string[] = ["1", "3", "5"];

type Chosen = Pick<
  SimOptions,
  "version" | "of" | "members" | "processes" | "lanes" | "names" | "ttlSeconds" | "faults"
>;

/** A run that can be repeated: what the seed chooses, what was chosen instead, and what was broken by hand. */
export interface Setting {
  readonly seed: string;
  /** Of the lab's table; empty: the sources. */
  readonly mutant: string;
  readonly options: Omit<SimOptions, "build">;
  readonly orders: readonly PlacedOrder[];
}

const KNOWN = [
  "seed",
  "mutant",
  "version",
  "of",
  "members",
  "processes",
  "lanes",
  "names",
  "ttl",
  "faults",
  "orders",
];

/** @throws {BadRequest} */
export function parseSetting(query: string): Setting {
  const params = new URLSearchParams(query);
  for (const name of params.keys())
    if (!KNOWN.includes(name)) throw new BadRequest(`Expected one of ${KNOWN.join(", ")}, got "${name}"`);
  const seed = params.get("seed") ?? "1";
  if (seed === "" || seed.length > 100) throw new BadRequest("Expected a seed of 1 to 100 characters");
  const mutant = among(
    params.get("mutant") ?? "",
    ["", ...MUTANTS.map(({ name }) => name)],
    "a rule of the lab's table",
  );
  const own = swarmOf(seed);
  return {
    ...{ seed, mutant },
    options: { ...own, ...chosenIn(params, own) },
    orders: parseOrders(params.get("orders") ?? ""),
  };
}

function chosenIn(params: URLSearchParams, own: Chosen): Chosen {
  const text = (name: string, otherwise: string): string => params.get(name) ?? otherwise;
  const whole = (name: string, least: number, most: number, otherwise: number): number =>
    between(text(name, String(otherwise)), { name, least, most });
  const names = SIM_FAULTS.map(({ name }) => name);
  const faults = params.get("faults")?.split(",").filter(Boolean) ?? own.faults;
  return {
    version: among(text("version", own.version), VERSIONS, "a version"),
    of: among(text("of", own.of), SUBJECTS, "a primitive"),
    members: Number(among(text("members", String(own.members)), MEMBERS, "a number of members")),
    processes: whole("processes", 1, 6, own.processes),
    lanes: whole("lanes", 1, 8, own.lanes),
    names: whole("names", 1, 12, own.names),
    ttlSeconds: whole("ttl", 2, 120, own.ttlSeconds),
    faults: faults.map((name) => among(name, names, "a fault")),
  };
}

function among<T extends string>(text: string, choices: readonly T[], what: string): T {
  const found = choices.find((choice) => choice === text);
  if (found !== undefined) return found;
  throw new BadRequest(`Expected ${what}, one of ${choices.filter(Boolean).join(", ")}; got "${text}"`);
}

interface Limits {
  readonly name: string;
  readonly least: number;
  readonly most: number;
}

function between(text: string, { name, least, most }: Limits): number {
  const number = Number(text);
  if (Number.isInteger(number) && number >= least && number <= most) return number;
  throw new BadRequest(`Expected ${name} to be a whole number from ${least} to ${most}, got "${text}"`);
}

/** The shortest query that `parseSetting` reads as this setting. */
export function formatSetting({ seed, mutant, options, orders }: Setting): string {
  const own = swarmOf(seed);
  const params = new URLSearchParams({ seed });
  if (mutant !== "") params.set("mutant", mutant);
  for (const name of ["version", "of", "members", "processes", "lanes", "names"] as const)
    if (options[name] !== own[name]) params.set(name, String(options[name]));
  if (options.ttlSeconds !== own.ttlSeconds) params.set("ttl", String(options.ttlSeconds));
  if (options.faults.join() !== own.faults.join()) params.set("faults", options.faults.join());
  if (orders.length > 0) params.set("orders", formatOrders(orders));
  // Legible in an address and in a shell's quotes.
  return params
    .toString()
    .replaceAll("%2C", ",")
    .replaceAll("%2F", "/")
    .replaceAll("%40", "@")
    .replaceAll("%3B", ";")
    .replaceAll("%3E", ">");
}
