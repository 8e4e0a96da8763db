// Locks whose key stays with the session after a release.
import { setTimeout as delay } from "node:timers/promises";
import { besideLastSectionMs, cyclesOf, pairsOf } from "../frame/cycles.js";
import { etcdOf, type Field } from "../frame/field.js";
import type { ContenderProcess } from "../frame/contender-process.js";
import { callsOf, measure, open, startAll, untilGranted, warmUp } from "../frame/measure.js";
import { median } from "../report/statistics.js";
import type { StepName } from "../worker/protocol.js";
import { HAND_OVER_COLUMNS, handOver, nameOf } from "./hand-over.js";
import type { Case, Question } from "./question.js";

const AGAIN = "the same lock again and again";
const QUICK_MS = 300;
const PAIRS = { warmMs: 1500, spanMs: 2000 };

async function pairs(field: Field) {
  const processes = await field.crew.processes(1);
  const [process] = processes as readonly [ContenderProcess];
  await warmUp(field, field.crew.cold(processes), {});
  await open(field, processes, [1]);
  await process.start({ kind: "pairs", name: field.name });
  await delay(field.scale.quick ? QUICK_MS : PAIRS.warmMs);
  const { span, spent, cpuMicros } = await measure(
    processes,
    field,
    field.scale.quick ? QUICK_MS : PAIRS.spanMs,
  );
  const { rate, p50 } = pairsOf(await process.stop(), span);
  const count = (rate * (span.to - span.from)) / 1e9;
  return { rate, p50, cpu: cpuMicros / count, rpcs: callsOf(spent) / count };
}

export const again: Question = {
  name: "sticky",
  title: "One process takes the same lock again and again, and nobody else wants it: lock and release",
  members: 1,
  columns: [
    { figure: "rate", title: "locks/s" },
    { figure: "p50", title: "lock and release, p50 µs, of 32 in a row" },
    { figure: "cpu", title: "client CPU µs" },
    { figure: "rpcs", title: "RPCs" },
  ],
  cases: () => [
    {
      ...{ name: AGAIN, run: pairs, rounds: 3 },
      peers: ["leasehold-sticky", "leasehold", "redis-semaphore", "redlock"],
    },
  ],
  targets: [
    { figure: "rate", bound: { atLeast: 500_000 }, title: "locks and releases a second" },
    { figure: "p50", bound: { atMost: 2 }, title: "µs to take it again and release it, p50" },
    { figure: "rpcs", bound: { atMost: 0.0001 }, title: "RPCs to take it again and release it" },
    ...(["redis-semaphore", "redlock"] as const).map((peer) => ({
      ...{ figure: "rate", bound: { atLeast: 1 }, over: { peer } },
      title: `locks and releases a second, over ${peer}'s`,
    })),
  ].map((target) => ({ ...target, case: AGAIN, peer: "leasehold-sticky" as const })),
};

const FIRST = "first lock of another process";
const SAMPLES = 15;
/** The first ones load and compile the code. */
const UNJUDGED = 5;

/** The wait for a key that another process keeps and nobody holds; with plain locks, a hand-over. */
async function first(field: Field) {
  const step: StepName =
    field.peer.name === "leasehold-sticky" ? "lock that another process keeps" : "hand-over";
  const [process] = (await field.crew.processes(1)) as readonly [ContenderProcess];
  const [address = ""] = etcdOf(field).addresses;
  const times: number[] = [];
  const unjudged = field.scale.quick ? 0 : UNJUDGED;
  for (let n = 0; n < unjudged + (field.scale.quick ? 1 : SAMPLES); n++) {
    const ms = await process.step(step, { address, name: `jobs/${field.name}-${n}` });
    if (n >= unjudged) times.push(ms);
  }
  return { p50: median(times), longest: Math.max(...times) };
}

const HAMMERED = "wait beside the last section of a process that takes it again and again";
const SECTION_MS = 20;
/** Each wants a name of its own: a name that was asked for is plain for a while. */
const STRANGERS = 20;
const APART_MS = 100;

async function hammered(field: Field) {
  const processes = await field.crew.processes(2);
  const [, stranger] = processes as readonly [ContenderProcess, ContenderProcess];
  await warmUp(field, field.crew.cold(processes), {});
  await open(field, processes, [1, 1]);
  const contenders = STRANGERS;
  const plan = { kind: "cycle", name: field.name, names: "each", contenders, holdMs: SECTION_MS } as const;
  const forMs = 2 * APART_MS * STRANGERS;
  await startAll(processes, [
    { ...plan, forMs },
    { ...plan, forMs, cycles: 1, afterMs: APART_MS },
  ]);
  await untilGranted(stranger, STRANGERS);
  const [own = [], foreign = []] = await Promise.all(processes.map((process) => process.stop()));
  const waits = besideLastSectionMs(cyclesOf([own]), cyclesOf([foreign]));
  return { p50: median(waits), longest: Math.max(...waits) };
}

export const strangers: Question = {
  name: "sticky-strangers",
  title: "How long others wait for a lock that a process takes again and again",
  members: 1,
  columns: [
    { figure: "p50", title: "p50 ms" },
    { figure: "longest", title: "longest ms" },
  ],
  cases: () => [
    { name: FIRST, rounds: 2, peers: ["leasehold-sticky", "leasehold"], run: first },
    {
      ...{ name: HAMMERED, rounds: 3, run: hammered },
      ...{ peers: ["leasehold-sticky", "leasehold"], others: ["redis-semaphore"] },
    },
  ],
  targets: [
    {
      title: "wait for a lock that another process keeps, over a plain hand-over",
      ...{ case: FIRST, peer: "leasehold-sticky", figure: "p50", over: { peer: "leasehold" } },
      bound: { atMost: 2 },
    },
    {
      title: "longest wait beside the running section, ms",
      ...{ case: HAMMERED, peer: "leasehold-sticky", figure: "longest", bound: { atMost: 5 } },
    },
  ],
};

const CROWDS = [2, 3, 10, 100];
/** Five percent are little beside the noise of a short span. */
const TIMES = { warmMs: 2000, spanMs: 4000 };

export const stickyCrowd: Question = {
  name: "sticky-crowd",
  title: "Hand-over among processes that all want it, with sticky locks and with plain ones",
  members: 1,
  columns: HAND_OVER_COLUMNS,
  cases: () =>
    CROWDS.map((contenders): Case => ({
      ...{ name: nameOf(contenders), peers: ["leasehold-sticky", "leasehold"] },
      run: (field) => handOver(field, contenders, 0, TIMES),
    })),
  targets: CROWDS.map((contenders) => ({
    title: `rate with ${contenders} contenders, over that of plain locks`,
    ...{ case: nameOf(contenders), peer: "leasehold-sticky", figure: "rate", over: { peer: "leasehold" } },
    bound: { atLeast: 0.95 },
  })),
};
