import type { Patch } from "./mutant.js";

/** What leasehold can do without, being slower only: the same lab must be green with it and without it. */
const TABLE = {
  batching: [{ file: "etcd/batch/batcher.js", from: "const MAX_BATCH = 96;", to: "const MAX_BATCH = 1;" }],
} satisfies Record<string, readonly Patch[]>;

export type Part = keyof typeof TABLE;
export const PARTS: Readonly<Record<Part, readonly Patch[]>> = TABLE;
