import type { Patch } from "./mutant.js";

/** Parts that leasehold can do without, at the cost of speed: the same lab must pass with and without each. */
const TABLE = {
  batching: [{ file: "etcd/batch.js", from: "const MAX_BATCH = 96;", to: "const MAX_BATCH = 1;" }],
} satisfies Record<string, readonly Patch[]>;

export type Part = keyof typeof TABLE;
export const PARTS: Readonly<Record<Part, readonly Patch[]>> = TABLE;
