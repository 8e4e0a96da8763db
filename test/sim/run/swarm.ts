import { SUBJECTS } from "../../lab/runner/subject.js";
import type { SimVersion } from "../etcd/types.js";
import { Random } from "../kernel/random.js";
import { SIM_FAULTS } from "./faults.js";
import type { SimOptions } from "./sim-run.js";

const VERSIONS: readonly SimVersion[] = ["3.4", "3.5", "3.6", "3.7"];

/**
 * The setting of a seed: each seed leaves out about half of the faults, because a run with all of them rarely gets far (Groce et
 * al., "Swarm Testing", ISSTA 2012).
 */
export function swarmOf(seed: string): Omit<SimOptions, "build"> {
  const random = new Random(seed).fork("swarm");
  const from = (least: number, most: number): number => least + random.int(most - least + 1);
  const gapMs = random.pick([
    [20, 200],
    [200, 2000],
    [1000, 8000],
  ] as const);
  return {
    seed,
    version: random.pick(VERSIONS),
    of: random.pick(SUBJECTS),
    ttlSeconds: random.pick([2, 3, 5, 10]),
    ...{ processes: from(1, 4), lanes: from(1, 4), names: from(1, 4) },
    camp: random.pick([0, 0, 0.2, 1]),
    ...{ calls: 200, seconds: 120, gapMs },
    faults: SIM_FAULTS.map(({ name }) => name).filter(() => random.chance(0.5)),
  };
}
