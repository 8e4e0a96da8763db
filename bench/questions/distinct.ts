// Many locks of one process at once, without contention.
import { perSecond } from "../frame/cycles.js";
import type { Field } from "../frame/field.js";
import { run } from "../frame/measure.js";
import type { Question } from "./question.js";

const TIMES = { warmMs: 500, spanMs: 1500 };

async function atOnce(field: Field, contenders: number) {
  const plan = { ...TIMES, contenders, names: "each", holdMs: 0, sessions: "one" } as const;
  const { cycles, span, costs } = await run(field, plan);
  // A lock and a release are two operations.
  return { rate: perSecond(cycles.length, span), perRpc: 2 / costs.rpcs, ...costs };
}

const nameOf = (locks: number) => `${locks} locks`;

export const distinct: Question = {
  name: "distinct",
  title: "Distinct locks at once, one process and one session: lock and release",
  members: 1,
  columns: [
    { figure: "rate", title: "locks/s" },
    { figure: "cpu", title: "client CPU µs" },
    { figure: "perRpc", title: "operations per RPC" },
  ],
  cases: () =>
    [64, 512].map((locks) => ({
      ...{ name: nameOf(locks), peers: ["leasehold", "bare", "go"] as const },
      run: (field: Field) => atOnce(field, locks),
    })),
  targets: [
    {
      title: "rate with 512 locks, over Go's",
      ...{ case: nameOf(512), peer: "leasehold", figure: "rate", over: { peer: "go" } },
      ...{ bound: { atLeast: 3 }, shown: "512 names at once, one session: locks/s" },
    },
    {
      title: "operations per RPC with 512 locks",
      ...{ case: nameOf(512), peer: "leasehold", figure: "perRpc", bound: { atLeast: 20 } },
    },
  ],
};
