import { quirksOf, type Quirks } from "../../../src/testing/memory/quirks.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { campaign, type Named } from "./campaign.js";
import { lateWatches } from "./late-watches.js";
import type { Subject } from "./subjects/subject.js";
import { SimSubject, type SimSubjectOptions } from "./subjects/sim-subject.js";

/** A simulated etcd that is not as etcd is: the comparison must find it. */
export interface Deviation {
  readonly name: string;
  readonly options: Partial<SimSubjectOptions>;
  /** Instead of random programs: a number that is 0 for only one of the two. */
  readonly count?: (subject: Subject) => Promise<number>;
}

/** Of the 25 watches of a round, etcd 3.4 and 3.5 are late with about one of a hundred, and 3.6 and 3.7 with none (measured). */
const ROUNDS = 100;

/** The series with one of its switches turned over, one after the other. */
export const switched = (series: SimVersion): Deviation[] =>
  Object.entries({ ...quirksOf(series) })
    .filter(([name]) => !isHidden(series, name as keyof Quirks))
    .map(([name, on]) => ({
      name: `${name}: ${!on}`,
      options: { quirks: { [name]: !on } },
      // The order of a read and a registration can be seen only while others write.
      ...(name === "startRevisionReadFirst" && { count: (subject) => lateWatches(subject, ROUNDS) }),
    }));

/** What only several members show. */
const OF_SEVERAL: readonly (keyof Quirks)[] = [
  "preVote",
  "readIndexRetried",
  "renewalWaitsForApply",
  "fastKeepalive",
  "staleExLeader",
];

/** Cannot be seen with one member, or has no effect beside another switch. */
const isHidden = (series: SimVersion, name: keyof Quirks): boolean =>
  OF_SEVERAL.includes(name) || (name === "progressNeedsStart" && quirksOf(series).progressAlways);

/** What distinguishes the deviation from `real`; undefined: nothing. */
export async function deviate(
  real: Named,
  version: SimVersion,
  { deviation, seed }: { readonly deviation: Deviation; readonly seed: string },
): Promise<string | undefined> {
  const subject = new SimSubject({ version, ...deviation.options });
  if (deviation.count) {
    await Promise.all([real.subject.begin(), subject.begin()]);
    const [one, other] = [await deviation.count(real.subject), await deviation.count(subject)];
    return one > 0 === other > 0 ? undefined : `found: ${one} late watches, simulated ${other}`;
  }
  const totals = await campaign([real, { name: "simulated", subject }], {
    ...{ seed, operations: 20_000, differences: 1, expiryEvery: 0 },
  });
  return totals.differences > 0 ? `found by ${totals.operations} operations` : undefined;
}
