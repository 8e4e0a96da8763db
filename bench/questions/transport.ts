// One transaction after the other: what the transports cost by themselves.
import { perSecond } from "../frame/cycles.js";
import type { Field } from "../frame/field.js";
import { run } from "../frame/measure.js";
import { WARM } from "./alone.js";
import type { Question, Target } from "./question.js";

const CASE = "one put in a transaction";

async function oneAfterTheOther(field: Field) {
  const plan = { ...WARM, contenders: 1, names: "one", kind: "call", holdMs: 0, sessions: "one" } as const;
  const { cycles, span, costs } = await run(field, plan);
  const rate = perSecond(cycles.length, span);
  return { rate, micros: 1e6 / rate, ...costs };
}

const overGrpcJs = (figure: string, title: string, atMost: number): Target => ({
  ...{ title, case: CASE, peer: "bare-http2", figure, over: { peer: "grpc-js" }, bound: { atMost } },
});

export const transport: Question = {
  name: "transport",
  title: "The transport alone: one transaction after the other",
  members: 1,
  columns: [
    { figure: "rate", title: "transactions/s" },
    { figure: "micros", title: "µs each" },
    { figure: "cpu", title: "client CPU µs" },
    { figure: "rpcs", title: "RPCs" },
  ],
  cases: () => [
    { name: CASE, peers: ["bare-http2", "node-http2", "grpc-js", "bare"], run: oneAfterTheOther },
  ],
  targets: [overGrpcJs("cpu", "client CPU of one transaction, over bare grpc-js's", 0.25)],
};
