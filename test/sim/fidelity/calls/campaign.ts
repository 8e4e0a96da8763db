// Many programs of users' calls side by side, each on memoryEtcd() in virtual time, and then on a real etcd in real time.
import type { SimVersion } from "../../../../src/testing/memory/protocol.js";
import { Random } from "../../../../src/testing/memory/random.js";
import { type Fault, type Flavor, type Plan, play } from "./program.js";
import { Gate, inMemory, RealEtcd } from "./worlds.js";

/** The first step whose outcomes differ. */
export interface Difference {
  readonly program: readonly string[];
  readonly memory: string;
  readonly real: string;
}

/** Programs of each flavor in a hundred, and how many of them run at a time: the calm ones use the processor, the others wait. */
const FLAVORS: readonly { readonly flavor: Flavor; readonly part: number; readonly atOnce: number }[] = [
  { flavor: "calm", part: 76, atOnce: 24 },
  { flavor: "timed", part: 16, atOnce: 160 },
  { flavor: "links", part: 4, atOnce: 160 },
  { flavor: "members", part: 4, atOnce: 40 },
];
const HUNDRED = 100;
/** So many programs share the faults of their members. */
const GROUP = 40;

/** The flavor of program `n`, and its number among those of the flavor. */
function flavorOf(n: number): { readonly flavor: Flavor; readonly index: number } {
  let first = 0;
  for (const { flavor, part } of FLAVORS) {
    const place = (n % HUNDRED) - first;
    if (place < part) return { flavor, index: Math.floor(n / HUNDRED) * part + place };
    first += part;
  }
  throw new RangeError("The parts are a hundred");
}

function faultsOf(seed: string, group: number, members: 1 | 3): Map<number, Fault> {
  const random = new Random(`${seed}/group ${group}`);
  const faults = new Map<number, Fault>();
  for (const step of [3, 6, 9]) {
    const last = faults.get(step - 3);
    const member = random.chance(0.4) || members === 1 ? {} : { member: random.int(members) };
    const how = random.pick(member.member === undefined ? (["restart"] as const) : HOW);
    faults.set(step, last?.how === "kill" ? { ...last, how: "restart" } : { how, ...member });
  }
  return faults;
}

const HOW = ["restart", "kill", "blink"] as const;

export interface CallsOptions {
  readonly seed: string;
  readonly members: 1 | 3;
  readonly binary: string | undefined;
  readonly log: (line: string) => void;
}

export interface CallsTotals {
  programs: number;
  steps: number;
  grants: number;
  losses: number;
  errors: number;
  differences: number;
  /** Did not occur when the program ran again, alone. */
  unsteady: number;
}

/** One program on both. `gate`: with others. */
export async function compareCalls(
  plan: Omit<Plan, "ended">,
  real: RealEtcd,
  { gate, totals }: { readonly gate?: Gate | undefined; readonly totals?: CallsTotals } = {},
): Promise<Difference | undefined> {
  const version = /^\d+\.\d+/.exec(real.version)![0] as SimVersion;
  const expected: string[] = [];
  const program: string[] = [];
  const ended = (what: string): boolean => program.push(what) > 0;
  await inMemory({ version, members: plan.members }, expected, (world) => play({ ...plan, ended }, world));
  if (totals) count(totals, expected);
  let difference: Difference | undefined;
  let step = 0;
  const compared = (what: string, outcome: string): boolean => {
    const [memory, n] = [`${program[step]}\n${expected[step]}`, step++];
    if (memory === `${what}\n${outcome}`) return true;
    difference = { program: program.slice(0, n + 1), memory, real: `${what}\n${outcome}` };
    return false;
  };
  const cuts = plan.flavor === "links";
  const used = gate ?? new Gate(1);
  try {
    await real.run({ expected, gate: used, cuts }, (world) => play({ ...plan, ended: compared }, world));
  } catch (error) {
    difference ??= { program: program.slice(0, step + 1), memory: expected[step] ?? "", real: String(error) };
  }
  return difference;
}

function count(totals: CallsTotals, outcomes: readonly string[]): void {
  const lines = outcomes.flatMap((outcome) => outcome.split("\n"));
  totals.programs++;
  totals.steps += outcomes.length;
  totals.grants += lines.filter((line) => line.includes(" granted")).length;
  totals.losses += lines.filter((line) => line.includes("ended: LOCK_LOST")).length;
  totals.errors += lines.filter((line) => /throws: |rejected: /.test(line)).length;
}

/** Compares the programs `from` to `to - 1`. */
export class CallsCampaign {
  readonly totals: CallsTotals = {
    ...{ programs: 0, steps: 0, grants: 0, losses: 0, errors: 0, differences: 0, unsteady: 0 },
  };

  constructor(
    private readonly options: CallsOptions,
    private readonly from: number,
    private readonly to: number,
  ) {}

  async run(): Promise<CallsTotals> {
    const { members, binary } = this.options;
    const calm = await RealEtcd.start(members, binary);
    const faulty = await RealEtcd.start(members, binary);
    try {
      const queues = FLAVORS.map(({ flavor, atOnce }) => {
        const real = flavor === "members" ? faulty : calm;
        return flavor === "members" ? this.#groups(real) : this.#pool(flavor, atOnce, real);
      });
      await Promise.all(queues);
    } finally {
      await Promise.all([calm.stop(), faulty.stop()]);
    }
    return this.totals;
  }

  *#programs(flavor: Flavor): Generator<{ readonly n: number; readonly index: number }> {
    for (let n = this.from; n < this.to; n++) {
      const found = flavorOf(n);
      if (found.flavor === flavor) yield { n, index: found.index };
    }
  }

  async #pool(flavor: Flavor, atOnce: number, real: RealEtcd): Promise<void> {
    const programs = this.#programs(flavor);
    const worker = async (): Promise<void> => {
      for (const { n, index } of programs) await this.#compare({ n, index, flavor }, real);
    };
    await Promise.all(Array.from({ length: atOnce }, worker));
  }

  /** Their faults are those of all programs of a group. */
  async #groups(real: RealEtcd): Promise<void> {
    const groups = new Map<number, { readonly n: number; readonly index: number }[]>();
    for (const each of this.#programs("members")) {
      const number = Math.floor(each.index / GROUP);
      groups.set(number, [...(groups.get(number) ?? []), each]);
    }
    for (const group of groups.values()) {
      const gate = new Gate(group.length);
      await Promise.all(group.map((each) => this.#compare({ ...each, flavor: "members" }, real, gate)));
    }
  }

  async #compare(
    { n, index, flavor }: { readonly n: number; readonly index: number; readonly flavor: Flavor },
    real: RealEtcd,
    gate?: Gate,
  ): Promise<void> {
    const { seed, members, log } = this.options;
    const faults =
      flavor === "members" ? faultsOf(seed, Math.floor(index / GROUP), members) : new Map<number, Fault>();
    const plan = { seed: `${seed}/${n}`, flavor, members, faults };
    const found = await compareCalls(plan, real, { gate, totals: this.totals });
    if (found === undefined) return;
    const again = gate === undefined ? await compareCalls(plan, real) : found;
    if (again === undefined) this.totals.unsteady++;
    else this.totals.differences++;
    const { program, memory, real: other } = again ?? found;
    log(
      [
        `Program ${n} (${flavor})${again === undefined ? ", not when it ran again" : ""}:`,
        ...program.map((line) => `    ${line}`),
        `memoryEtcd:\n${memory}`,
        `etcd:\n${other}`,
      ].join("\n"),
    );
  }
}
