// Hand-over while another client writes to the same etcd.
import type { Field } from "../frame/field.js";
import { open } from "../frame/measure.js";
import { HAND_OVER_COLUMNS, handOver } from "./hand-over.js";
import type { Question } from "./question.js";

const WRITES_PER_SECOND = 500;
const CONTENDERS = 2;
const CASE = `${CONTENDERS} contenders, 0 ms, ${WRITES_PER_SECOND} writes/s`;

async function besideWrites(field: Field) {
  const writers = await field.bare.processes(1);
  await open({ ...field, crew: field.bare }, writers, [1]);
  const task = { kind: "write", name: "elsewhere", perSecond: WRITES_PER_SECOND } as const;
  await Promise.all(writers.map((writer) => writer.start(task)));
  try {
    return await handOver(field, CONTENDERS, 0);
  } finally {
    await Promise.all(writers.map((writer) => writer.stop()));
  }
}

const ours = { case: CASE, peer: "leasehold", over: { peer: "go" } } as const;

export const busyEtcd: Question = {
  name: "busy-etcd",
  title: `Hand-over while another client writes ${WRITES_PER_SECOND} keys/s`,
  members: 1,
  // etcd's counts include those writes.
  columns: HAND_OVER_COLUMNS.filter(({ figure }) => figure !== "rpcs"),
  cases: () => [{ name: CASE, peers: ["leasehold", "go"], run: besideWrites }],
  targets: [
    { ...ours, title: "rate, over Go's", figure: "rate", bound: { atLeast: 10 } },
    { ...ours, title: "p99, over Go's", figure: "p99", bound: { atMost: 1 / 3 } },
  ],
};
