import type { Random } from "../../../lab/runner/random.js";
import { keyOf, revisionNear } from "./draws.js";
import type { Key, PlannedRange } from "./program.js";

/** A bound after which the whole range is taken: "\0" is every key from `key` on; "" is no bound at all. */
const ENDS: readonly Key[] = ["a0", "b0", "c", "zz", "\0", "", "a", Buffer.from([0xff]), "a/2"];

export function drawRange(random: Random): PlannedRange {
  const key = random.chance(0.6) ? random.pick<Key>(["a/", "a", "\0", "b/", "a/1"]) : keyOf(random);
  const range: Record<string, unknown> = { key };
  if (random.chance(0.8)) range["end"] = random.chance(0.6) ? "zz" : random.pick(ENDS);
  if (random.chance(0.4)) range["order"] = random.pick(["oldest first", "newest first"]);
  if (random.chance(0.35)) range["limit"] = random.pick([0, 1, 1, 2, 3, 100]);
  if (random.chance(0.3)) range["maxCreateRevision"] = revisionNear(random);
  if (random.chance(0.3)) range["revision"] = revisionNear(random);
  if (random.chance(0.2)) range["keysOnly"] = true;
  if (random.chance(0.2)) range["serializable"] = true;
  return range as unknown as PlannedRange;
}
