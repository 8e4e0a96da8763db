// How long each contender waits when all want the same lock.
import { longestWaitMs, percentToOthers, perSecond, waitsMs } from "../frame/cycles.js";
import type { Field } from "../frame/field.js";
import { run } from "../frame/measure.js";
import { median } from "../report/statistics.js";
import type { Question } from "./question.js";

const CONTENDERS = 10;
const HOLD_MS = 1;
const ROUNDS = 2;
const TIMES = { warmMs: 500, spanMs: 3000 };

async function waits(field: Field) {
  const plan = { contenders: CONTENDERS, names: "one", holdMs: HOLD_MS, sessions: "each" } as const;
  const { cycles, span } = await run(field, { ...TIMES, ...plan });
  const middle = median(waitsMs(cycles));
  const longest = longestWaitMs(cycles, span, CONTENDERS);
  return {
    ...{ rate: perSecond(cycles.length, span), toOthers: percentToOthers(cycles) },
    ...{ median: middle, longest, ratio: longest / middle },
  };
}

export const fairness: Question = {
  name: "fairness",
  title: "Fairness: the longest wait over the median wait",
  members: 1,
  columns: [
    { figure: "ratio", title: "longest / median" },
    { figure: "longest", title: "longest ms" },
    { figure: "median", title: "median ms" },
    { figure: "toOthers", title: "to another %" },
    { figure: "rate", title: "hand-overs/s" },
  ],
  cases: () => [
    {
      ...{ name: `${CONTENDERS} contenders, ${HOLD_MS} ms`, rounds: ROUNDS, peers: ["leasehold", "go"] },
      others: ["etcd3", "redlock", "redlock-fsync", "redis-semaphore", "redis-semaphore-fsync"],
      run: waits,
    },
  ],
  targets: [],
};
