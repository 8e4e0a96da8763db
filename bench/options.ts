import { parseArgs } from "node:util";

export const USAGE = `npm run bench -- [options]
  --only LIST   questions by name
  --case TEXT   only cases whose name contains it
  --rounds N    of each case, default 5; 1 with --quick
  --quick       a few operations each: to see that it runs; the figures mean nothing
  --json        for machines
  --write       writes bench/RESULTS.md, bench/plot.svg and the table in docs/operations.md
  --build DIR   another build of leasehold
  --help        this, and the names of the questions`;

export interface Options {
  readonly only: readonly string[];
  readonly inCase: string;
  readonly rounds: number;
  readonly quick: boolean;
  readonly json: boolean;
  readonly write: boolean;
  readonly help: boolean;
  readonly build: string | undefined;
}

const flag = { type: "boolean", default: false } as const;

/** Throws an Error that describes the invalid argument. */
export function parseOptions(args: readonly string[], questions: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: "string", default: questions.join() },
      case: { type: "string", default: "" },
      rounds: { type: "string" },
      build: { type: "string" },
      ...{ quick: flag, json: flag, write: flag, help: flag },
    },
  });
  const { quick, json, write, help, build } = values;
  const rounds = Number(values.rounds ?? (quick ? 1 : 5));
  if (!Number.isInteger(rounds) || rounds < 1)
    throw new RangeError(`Expected --rounds to be a whole number of 1 or more, got ${values.rounds}`);
  const only = values.only.split(",");
  const unknown = only.filter((name) => !questions.includes(name));
  if (unknown.length > 0) throw new RangeError(`Expected --only to name questions, got ${unknown.join()}`);
  const partial = quick || only.length < questions.length || values.case !== "";
  if (write && partial)
    throw new RangeError(
      "Expected --write with all questions and without --quick: what is written must mean something",
    );
  return { only, inCase: values.case, rounds, quick, json, write, help, build };
}
