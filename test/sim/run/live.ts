import { judge, LABELS, type Label, type Verdict } from "../../lab/checker/judge.js";
import { SimRun, type SimOptions, type SimResult } from "./sim-run.js";

/** A run that is not over has leftovers, calls that wait, and holds without an end. */
const AT_THE_END: readonly Label[] = ["I7", "I8", "I10"];
/** What holds at each moment of a run. */
export const MEANWHILE: readonly Label[] = LABELS.filter((label) => !AT_THE_END.includes(label));

/** Between two verdicts, in virtual time. */
export const LIVE_MS = 100;

export interface LiveResult {
  readonly result: SimResult;
  readonly verdict: Verdict;
  /** The virtual time at which a violation was noticed: the run has ended there. `undefined`: the run has ended by itself. */
  readonly noticedAtMs: number | undefined;
}

/** Judges a run every `everyMs` of virtual time, by the rules that hold at each moment, and at its end by all. `Infinity`: only then. */
export async function runLive(options: SimOptions, everyMs: number): Promise<LiveResult> {
  let next = everyMs;
  const check = (time: number): undefined => {
    if (time < next) return;
    next = time + everyMs;
    const verdict = judge(run.result().run, MEANWHILE);
    if (isBroken(verdict)) throw new Noticed(verdict, time);
  };
  const run = new SimRun({ ...options, hold: check });
  try {
    await run.work();
    await run.settle();
  } catch (error) {
    if (!(error instanceof Noticed)) throw error;
    return { result: run.result(), verdict: error.verdict, noticedAtMs: error.atMs };
  }
  const result = run.result();
  return { result, verdict: judge(result.run), noticedAtMs: undefined };
}

const isBroken = ({ violations }: Verdict): boolean => Object.keys(violations).length > 0;

/** Ends the run. */
class Noticed extends Error {
  constructor(
    readonly verdict: Verdict,
    readonly atMs: number,
  ) {
    super("an invariant is broken");
  }
}
