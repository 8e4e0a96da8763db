import { type Avoidable, without } from "./programs/avoid.js";
import { compare, type Difference, report } from "./compare.js";
import { generate } from "./programs/generate.js";
import type { Program } from "./programs/program.js";
import { run, type Transcript } from "./running/run.js";
import { shrink } from "./programs/shrink.js";
import type { Subject } from "./subjects/subject.js";

export interface Named {
  readonly name: string;
  readonly subject: Subject;
}

export interface CampaignOptions {
  readonly seed: string;
  readonly operations: number;
  /** Ends after so many differences. */
  readonly differences: number;
  /** Leases expire in one of so many programs, which takes seconds; 0: in none. */
  readonly expiryEvery: number;
  readonly avoided?: ReadonlySet<Avoidable>;
  readonly log?: (line: string) => unknown;
}

export interface Totals {
  operations: number;
  rejected: number;
  revisions: number;
  events: number;
  differences: number;
  /** Differences that did not occur again in any of some repetitions: etcd's answer depended on the time. */
  unsteady: number;
  /** Programs until the last difference. */
  programs: number;
}

const STEPS = 100;
const REPETITIONS = 5;

/** Runs random programs on both subjects, until enough operations ran or differences were found. */
export async function campaign(pair: readonly [Named, Named], options: CampaignOptions): Promise<Totals> {
  const none = { operations: 0, rejected: 0, revisions: 0, events: 0 };
  const totals: Totals = { ...none, differences: 0, unsteady: 0, programs: 0 };
  while (totals.operations < options.operations && totals.differences < options.differences) {
    const expiry = options.expiryEvery > 0 && (totals.programs + 1) % options.expiryEvery === 0;
    const drawn = generate(`${options.seed}/${totals.programs++}`, STEPS, expiry);
    const program = options.avoided ? without(drawn, options.avoided) : drawn;
    const { transcript, difference } = await both(program, pair);
    totals.operations += program.length;
    add(totals, transcript);
    if (!difference) continue;
    const explained = await explain(program, pair, `${options.seed}/${totals.programs - 1}`, difference);
    totals[explained.steady ? "differences" : "unsteady"]++;
    options.log?.(explained.text);
  }
  return totals;
}

function add(totals: Totals, { outcomes, revisions, events }: Transcript): void {
  const answers = outcomes.filter(({ step }) => step >= 0);
  totals.rejected += answers.filter(({ text }) => /^!|^\d+: /.test(text)).length;
  totals.revisions += revisions;
  totals.events += events;
}

async function both(
  program: Program,
  pair: readonly [Named, Named],
): Promise<{ readonly transcript: Transcript; readonly difference: Difference | undefined }> {
  const [left, right] = await Promise.all([run(program, pair[0].subject), run(program, pair[1].subject)]);
  return { transcript: left, difference: compare(left, right) };
}

interface Explained {
  readonly steady: boolean;
  readonly text: string;
}

/** The shortest program with a difference. One that does not occur again is a matter of time: its text states that. */
async function explain(
  program: Program,
  pair: readonly [Named, Named],
  seed: string,
  first: Difference,
): Promise<Explained> {
  const names = [pair[0].name, pair[1].name] as const;
  const remains = async (other: Program): Promise<boolean> =>
    (await both(other, pair)).difference !== undefined;
  if (!(await occursAgain(program, remains))) {
    const text = `program ${seed}: not again in ${REPETITIONS} repetitions\n${report([], first, names)}`;
    return { steady: false, text };
  }
  const shortest = await shrink(program, remains);
  const { difference } = await both(shortest, pair);
  const text = difference ? report(shortest, difference, names) : "the difference does not always occur";
  return { steady: true, text: `program ${seed}:\n${text}` };
}

async function occursAgain(
  program: Program,
  remains: (program: Program) => Promise<boolean>,
): Promise<boolean> {
  for (let n = 0; n < REPETITIONS; n++) if (await remains(program)) return true;
  return false;
}
