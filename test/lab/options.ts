import { parseArgs } from "node:util";
import { SUBJECTS, type Of } from "./runner/subject.js";
import { PARTS, type Part } from "./mutants/parts.js";
import { TIERS, type TierName } from "./tiers/index.js";

export interface ChaosOptions {
  readonly of: readonly Of[];
  readonly tiers: readonly TierName[];
  readonly seed: string;
  readonly seconds: number;
  readonly faults: readonly string[] | undefined;
  readonly only: readonly number[] | undefined;
  readonly ttlSeconds: number;
  readonly workers: number;
  readonly lanes: number;
  readonly names: number;
  readonly nested: boolean;
  readonly tls: boolean;
  readonly auth: "on" | "off" | undefined;
  readonly guardian: boolean;
  readonly wanted: boolean;
  readonly sticky: boolean;
  readonly maxStallMs: number | undefined;
  readonly releaseDelayMs: number | undefined;
  readonly etcdVersion: string | undefined;
  readonly keep: string | undefined;
  readonly build: string | undefined;
  readonly without: Part | undefined;
  readonly shrinkRuns: number;
  readonly quiet: boolean;
}

export const USAGE = `npm run chaos -- [options]
  --tier LIST      ${Object.keys(TIERS).join(", ")} or all (default: t1,t2); --time is divided among the runs
  --of LIST        ${SUBJECTS.join(", ")} or all, one run each (default: mutex)
  --seed S         replays the schedule of a seed; default: a new one, or LEASEHOLD_SEED
  --time SECONDS   default 60
  --faults LIST    only these kinds of faults; --list names them
  --only LIST      only these numbers of the schedule
  --ttl SECONDS    of the sessions; default 2
  --workers N      processes; default 4
  --lanes N        calls at a time of each process; default 4; more go in step, so that they share requests
  --names N        locks; default 4
  --nested         every second lock lies under the one before it
  --tls            workers speak TLS (t2); faults that need it bring it with them
  --auth on|off    etcd has users, and asks for passwords at the beginning or does not (t1, t2)
  --guardian       each worker has a guardian, which revokes its leases when it is killed
  --wanted         holders listen for waiters
  --sticky         the keys of locks may stay with their sessions after a release
  --max-stall S    a worker thread of each worker renews its leases, while its main thread does not stand still for longer
  --delay S        whoever follows a holder that has crashed waits for so long
  --etcd VERSION   such as 3.5; default: the first etcd that is found
  --keep DIR       leaves the history there also when all went well
  --build DIR      another build of leasehold, such as a mutant
  --without PART   a build without it: ${Object.keys(PARTS).join(", ")}
  --shrink N       runs to shorten a failing list of faults; default 6
  --quiet          no line per fault
  --list           the tiers and their faults`;

/** Throws an Error that describes the invalid argument. */
export function parseOptions(args: readonly string[]): ChaosOptions | "list" | "help" {
  const text = { type: "string" } as const;
  const flag = { type: "boolean", default: false } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ tier: text, of: text, seed: text, time: text, faults: text, only: text, ttl: text },
      ...{ workers: text, lanes: text, names: text, nested: flag, without: text },
      ...{
        tls: flag,
        auth: text,
        guardian: flag,
        wanted: flag,
        sticky: flag,
        "max-stall": text,
        delay: text,
      },
      ...{ etcd: text, keep: text, build: text, shrink: text, quiet: flag, list: flag, help: flag },
    },
  });
  if (values.help) return "help";
  if (values.list) return "list";
  return {
    tiers: some("tier", values.tier ?? "t1,t2", Object.keys(TIERS) as TierName[]),
    of: some("of", values.of ?? "mutex", SUBJECTS),
    seed: values.seed ?? process.env["LEASEHOLD_SEED"] ?? String(Date.now() % 1e6),
    seconds: number("time", values.time ?? "60", 1),
    faults: values.faults?.split(","),
    only: values.only?.split(",").map((n) => number("only", n, 0)),
    ttlSeconds: number("ttl", values.ttl ?? "2", 2),
    workers: number("workers", values.workers ?? "4", 1),
    lanes: number("lanes", values.lanes ?? "4", 1),
    names: number("names", values.names ?? "4", 1),
    nested: values.nested,
    tls: values.tls,
    auth: onOrOff(values.auth),
    guardian: values.guardian,
    wanted: values.wanted,
    sticky: values.sticky,
    maxStallMs:
      values["max-stall"] === undefined ? undefined : number("max-stall", values["max-stall"], 1) * 1000,
    releaseDelayMs: values.delay === undefined ? undefined : number("delay", values.delay, 1) * 1000,
    etcdVersion: values.etcd,
    keep: values.keep,
    build: values.build,
    without: part(values.without),
    shrinkRuns: number("shrink", values.shrink ?? "6", 0),
    quiet: values.quiet,
  };
}

function some<T extends string>(option: string, list: string, known: readonly T[]): readonly T[] {
  if (list === "all") return known;
  const names = list.split(",");
  const unknown = names.filter((name) => !(known as readonly string[]).includes(name));
  if (unknown.length > 0) throw new Error(`Expected --${option} all or some of ${known.join()}, got ${list}`);
  return names as T[];
}

function onOrOff(value: string | undefined): "on" | "off" | undefined {
  if (value === undefined || value === "on" || value === "off") return value;
  throw new Error(`Expected --auth on or off, got ${value}`);
}

function part(name: string | undefined): Part | undefined {
  if (name === undefined || name in PARTS) return name as Part | undefined;
  throw new Error(`Expected --without ${Object.keys(PARTS).join()}, got ${name}`);
}

function number(option: string, value: string, least: number): number {
  const parsed = Number(value);
  if (!Number.isInteger(parsed) || parsed < least)
    throw new Error(`Expected --${option} to be a whole number of at least ${least}, got ${value}`);
  return parsed;
}
