// Hand-over from release to the next holder, by the number of contenders and the length of the critical section.
import { latencies, percentToOthers, perSecond } from "../frame/cycles.js";
import type { Field } from "../frame/field.js";
import { run, type Times } from "../frame/measure.js";
import type { PeerName } from "../peers/peers.js";
import type { Case, Column, Question, Target } from "./question.js";

export const HAND_OVER_COLUMNS: readonly Column[] = [
  { figure: "rate", title: "hand-overs/s" },
  { figure: "toOthers", title: "to another %" },
  { figure: "p50", title: "p50 ms" },
  { figure: "p99", title: "p99 ms" },
  { figure: "cpu", title: "client CPU µs" },
  { figure: "rpcs", title: "RPCs" },
  { figure: "messages", title: "stream messages" },
];

/**
 * After a new connection, Node.js compiles again, for seconds. Go's client hands over 27 times a second with two contenders:
 * in a shorter span, its p99 would be random.
 */
const TIMES: Times = { warmMs: 2000, spanMs: 2000 };
const SHORT: Times = { warmMs: 300, spanMs: 1500 };
/** At 40 hand-overs a second, for a p99 that is not the largest of a few. */
const LONG: Times = { warmMs: 1000, spanMs: 8000 };
const CROWD = [2, 3, 10, 100, 1000];
const QUICK_CROWD = [2, 10];
const POLLING = [
  ...["etcd3", "redlock", "redlock-fsync", "redis-semaphore", "redis-semaphore-fsync"],
] as readonly PeerName[];

export async function handOver(field: Field, contenders: number, holdMs: number, times = TIMES) {
  const plan = { ...times, contenders, names: "one", holdMs, sessions: "each" } as const;
  const { cycles, span, costs } = await run(field, plan);
  const rate = perSecond(cycles.length, span);
  return { rate, toOthers: percentToOthers(cycles), ...latencies(cycles), ...costs };
}

export const nameOf = (contenders: number, holdMs = 0) =>
  `${contenders.toLocaleString("en")} contenders, ${holdMs} ms`;

/** Rate and p99 against Go's client. */
export function againstGo(contenders: number, atLeast: number, p99: number | undefined): Target[] {
  const ours = { case: nameOf(contenders), peer: "leasehold", over: { peer: "go" } } as const;
  const rate: Target = {
    ...{
      ...ours,
      title: `rate with ${contenders.toLocaleString("en")} contenders, over Go's`,
      figure: "rate",
    },
    bound: { atLeast },
  };
  if (p99 === undefined) return [rate];
  const title = `p99 with ${contenders.toLocaleString("en")} contenders, over Go's`;
  return [rate, { ...ours, title, figure: "p99", bound: { atMost: p99 } }];
}

const P99_OVER_GO = 1.2;
/** With 100 contenders and more. */
const P99_OF_CROWDS = 1.1;

const PROMPT = nameOf(10, 20);

const shown = ([rate, ...others]: readonly Target[], line: string) => [
  ...(rate ? [{ ...rate, shown: line }] : []),
  ...others,
];

export const handOvers: Question = {
  name: "hand-over",
  title: "Hand-over, by contenders and critical section",
  members: 1,
  columns: HAND_OVER_COLUMNS,
  cases: ({ quick }) => {
    const crowds = quick ? QUICK_CROWD : CROWD;
    const free = crowds.map((contenders): Case => ({
      ...{ name: nameOf(contenders), contenders, peers: ["leasehold", "go"], others: POLLING },
      run: (field) => handOver(field, contenders, 0),
    }));
    const busy = crowds.flatMap((contenders) =>
      [1, 20].map((holdMs): Case => ({
        ...{ name: nameOf(contenders, holdMs), peers: ["leasehold", "go"] },
        ...(nameOf(contenders, holdMs) === PROMPT
          ? { run: (field) => handOver(field, contenders, holdMs, LONG) }
          : { rounds: 2, run: (field) => handOver(field, contenders, holdMs, SHORT) }),
      })),
    );
    return [...free, ...busy];
  },
  targets: [
    ...shown(againstGo(2, 28, P99_OVER_GO), "hand-overs/s, 2 contenders"),
    ...againstGo(3, 22, P99_OVER_GO),
    ...againstGo(10, 5, P99_OVER_GO),
    ...shown(againstGo(100, 1.1, P99_OF_CROWDS), "hand-overs/s, 100 contenders"),
    ...againstGo(1000, 1.5, P99_OF_CROWDS),
    {
      title: "p99 with 10 contenders of 20 ms, over Go's",
      ...{ case: PROMPT, peer: "leasehold", figure: "p99", over: { peer: "go" }, bound: { atMost: 1 } },
    },
    {
      title: "rate with 1,000 contenders, over that with 100",
      ...{ case: nameOf(1000), peer: "leasehold", figure: "rate", over: { case: nameOf(100) } },
      bound: { atLeast: 0.55 },
    },
  ],
};
