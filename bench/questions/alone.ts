// One lock after the other, without waiters.
import { perSecond } from "../frame/cycles.js";
import { run } from "../frame/measure.js";
import type { Field } from "../frame/field.js";
import type { Question } from "./question.js";

const CASE = "lock and release";
/** After a new connection, Node.js compiles again, for seconds. */
export const WARM = { warmMs: 4000, spanMs: 1500 } as const;

async function oneAfterTheOther(field: Field) {
  const plan = {
    ...WARM,
    contenders: 1,
    names: "one",
    holdMs: 0,
    sessions: "one",
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
      ...{ name: CASE, peers: ["leasehold", "bare-http2", "go"] },
      others: [
        ...(["leasehold-etcd3", "bare", "etcd3"] as const),
        ...(["redlock", "redlock-fsync", "redis-semaphore", "redis-semaphore-fsync"] as const),
      ],
      run: oneAfterTheOther,
    },
  ],
  targets: [
    {
      title: "time of lock and release, over Go's",
      ...{ case: CASE, peer: "leasehold", figure: "ms", over: { peer: "go" } },
      ...{ bound: { atMost: 1 }, shown: "lock and release, nobody waiting: ms" },
    },
    {
      title: "client CPU of lock and release, over Go's",
      ...{ case: CASE, peer: "leasehold", figure: "cpu", over: { peer: "go" } },
      ...{ bound: { atMost: 1.2 }, shown: "lock and release, nobody waiting: client CPU µs" },
    },
    {
      title: "time of lock and release, over two bare transactions of leasehold's own transport",
      ...{ case: CASE, peer: "leasehold", figure: "ms", over: { peer: "bare-http2" } },
      bound: { atMost: 1.15 },
    },
  ],
};
