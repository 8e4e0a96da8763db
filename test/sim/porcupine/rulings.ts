import { queueOf } from "../../lab/checker/places.js";
import { FOREVER, later } from "../../lab/checker/spans.js";
import type { Source } from "./export.js";
import type { Operation } from "./operation.js";

/** How many permits each weighted semaphore has, from when on: the number of its oldest place rules. */
export function rulingOperations({ facts, times }: Source): Operation[] {
  const weighted = facts.calls.filter(({ weight }) => weight !== undefined);
  const names = [...new Set(weighted.map(({ lock }) => lock))];
  return names.flatMap((name) => {
    const of = { object: "weighted", name, op: "rule", client: "etcd" } as const;
    return rulingsOf(facts, name).map(({ permits, rev, seen }) => ({
      ...of,
      permits,
      ...times.revision(rev, seen),
    }));
  });
}

interface Ruling {
  readonly permits: number;
  /** From this revision on. */
  readonly rev: bigint;
  readonly seen: bigint;
}

function rulingsOf({ places }: Source["facts"], lock: string): Ruling[] {
  const rulings: Ruling[] = [];
  let [since, sinceSeen] = [0n, 0n];
  for (const { permits = 1, create, seen, freed = FOREVER, freedSeen = FOREVER } of queueOf(lock, places)) {
    // It was never the oldest one.
    if (freed <= since) continue;
    const begins = { rev: later(create, since), seen: create > since ? seen : sinceSeen };
    if (rulings.at(-1)?.permits !== permits) rulings.push({ permits, ...begins });
    [since, sinceSeen] = [freed, freedSeen];
  }
  return rulings;
}
