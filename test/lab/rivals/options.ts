import { parseArgs } from "node:util";

export const USAGE = `npm run chaos:rivals -- [options]

  --only A,B     subjects and scenarios by name; default: all
  --seed S       of the mixed runs
  --jobs N       runs at a time; default 4
  --keep FOLDER  leaves the history of each run there
  --write        writes the table to test/lab/rivals/RESULTS.md
  --help         this, and the names of subjects and scenarios
`;

export interface RivalsOptions {
  readonly subjects: readonly string[];
  readonly scenarios: readonly string[];
  readonly seed: string;
  readonly jobs: number;
  readonly keep?: string;
  readonly write: boolean;
  readonly help: boolean;
}

interface Known {
  readonly subjects: readonly string[];
  readonly scenarios: readonly string[];
}

/** Throws an Error that describes the invalid option. */
export function parseOptions(args: readonly string[], known: Known): RivalsOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: "string", default: "" },
      seed: { type: "string", default: "rivals" },
      jobs: { type: "string", default: "4" },
      keep: { type: "string" },
      write: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const { seed, write, help, keep } = values;
  const jobs = Number(values.jobs);
  if (!Number.isInteger(jobs) || jobs < 1)
    throw new RangeError(`Expected --jobs to be a whole number of 1 or more, got ${values.jobs}`);
  return { ...chosen(values.only, known), seed, jobs, write, help, ...(keep !== undefined && { keep }) };
}

/** All subjects if none is named; all scenarios if none is named. */
function chosen(only: string, known: Known): Known {
  const names = only.split(",").filter(Boolean);
  const unknown = names.filter((name) => !known.subjects.includes(name) && !known.scenarios.includes(name));
  if (unknown.length > 0)
    throw new RangeError(`Expected --only to name subjects and scenarios, got ${unknown.join()}`);
  const among = (all: readonly string[]) => {
    const named = all.filter((name) => names.includes(name));
    return named.length > 0 ? named : all;
  };
  return { subjects: among(known.subjects), scenarios: among(known.scenarios) };
}
