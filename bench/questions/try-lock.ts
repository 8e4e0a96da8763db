// tryLock of a name that another client holds.
import { perSecond } from "../frame/cycles.js";
import { etcdOf, type Field } from "../frame/field.js";
import { run } from "../frame/measure.js";
import type { Question } from "./question.js";

const TIMES = { warmMs: 400, spanMs: 1200 };
const CASE = "tryLock, one after the other";

async function refused(field: Field) {
  const unblock = await etcdOf(field).block(field.name);
  const plan = { contenders: 1, names: "one", kind: "try", holdMs: 0, sessions: "one" } as const;
  const { cycles, span, costs } = await run(field, { ...TIMES, ...plan });
  await unblock();
  return { rate: perSecond(cycles.length, span), ...costs };
}

export const tryLock: Question = {
  name: "try-lock",
  title: "tryLock of a name that is taken",
  members: 1,
  columns: [
    { figure: "rate", title: "refusals/s" },
    { figure: "cpu", title: "client CPU µs" },
    { figure: "rpcs", title: "RPCs" },
    { figure: "revisions", title: "revisions" },
  ],
  cases: () => [{ name: CASE, peers: ["leasehold", "go"], run: refused }],
  targets: [
    {
      title: "rate, over Go's",
      ...{ case: CASE, peer: "leasehold", figure: "rate", over: { peer: "go" } },
      ...{ bound: { atLeast: 1.5 } },
    },
    // A request may be counted on one side of an end of the span, and its refusal on the other.
    { title: "RPCs each", case: CASE, peer: "leasehold", figure: "rpcs", bound: { atMost: 1.05 } },
    { title: "revisions each", case: CASE, peer: "leasehold", figure: "revisions", bound: { atMost: 0 } },
  ],
};
