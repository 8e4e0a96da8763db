import type { Context } from "./context.js";
import { Lane } from "./lane.js";
import { RendezvousLane } from "./rendezvous-lane.js";
import { ResultLane } from "./result-lane.js";
import { ShardLane } from "./shard-lane.js";

const KINDS = ["own", "other", "shared", "shared"] as const;

/** One line of work in a process, until `finishing`. */
export interface Line {
  run(): Promise<void>;
  close(): Promise<void>;
}

/** So many, each with random numbers of its own. */
export function lanesOf(context: Context, count: number, seed: string): readonly Line[] {
  return Array.from({ length: count }, (_, n) => {
    const own = `${seed} ${context.p} ${n}`;
    if (context.of === "shards") return new ShardLane(context, { n, seed: own });
    if (context.of === "results") return new ResultLane(context, { n, seed: own });
    if (context.of === "rendezvous") return new RendezvousLane(context, { n, seed: own });
    const kind = KINDS[n % KINDS.length] ?? "own";
    return new Lane(context, { n, kind, of: context.of, seed: own });
  });
}
