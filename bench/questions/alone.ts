// One lock after the other, without waiters.
import { perSecond } from "../frame/cycles.js";
import { run } from "../frame/measure.js";
import type { Field } from "../frame/field.js";
import type { Question } from "./question.js";

const TIMES = { warmMs: 4000, spanMs: 1500 };
/** Node.js keeps compiling for thousands of cycles: after the first 2,000, a cycle still gets faster by a fifth. */
const WARM_UP = { cycles: 10_000, withinMs: 30_000 };

async function oneAfterTheOther(field: Field) {
  const plan = {
    ...TIMES,
    contenders: 1,
    names: "one",
    holdMs: 0,
    sessions: "one",
    warmUp: WARM_UP,
  } as const;
  const { cycles, span, costs } = await run(field, plan);
  const rate = perSecond(cycles.length, span);
  return { rate, ms: 1000 / rate, ...costs };
}

export const alone: Question = {
  name: "alone",
  title: "One lock after the other, nobody waiting: lock and release",
  members: 1,
  columns: [
    { figure: "rate", title: "locks/s" },
    { figure: "ms", title: "ms each" },
    { figure: "cpu", title: "client CPU µs" },
    { figure: "rpcs", title: "RPCs" },
  ],
  cases: () => [
    {
      name: "lock and release",
      peers: ["leasehold", "bare", "go"],
      others: ["etcd3", "redlock", "redlock-fsync", "redis-semaphore", "redis-semaphore-fsync"],
      run: oneAfterTheOther,
    },
  ],
  targets: [
    {
      title: "time of lock and release, over two bare transactions",
      ...{ case: "lock and release", peer: "leasehold", figure: "ms", over: { peer: "bare" } },
      ...{ bound: { atMost: 1.1 }, shown: "lock and release, nobody waiting: ms" },
    },
  ],
};
