// The cost of sessions and locks while nothing happens.
import { setTimeout as delay } from "node:timers/promises";
import { etcdOf, type Field } from "../frame/field.js";
import { measure, open, startAll, TTL_SECONDS, untilGranted } from "../frame/measure.js";
import type { ContenderProcess } from "../frame/contender-process.js";
import type { Question } from "./question.js";

/** Several renewals of each session, which renews three times in a TTL. */
const SPAN_MS = TTL_SECONDS * 1000;
const RENEWALS = 3;
const QUICK_MS = 500;
/** After releases, a session lists its keys, with pauses that double: after 15, 45 and 105 s. These spans are between two of them. */
const LISTED_MS = 45_000;
/**
 * The span with the median cost counts: V8's memory reducer collects the garbage of the opening once, 20 to 40 s after the last
 * grant (`node --trace-gc`), and that falls into one span at most.
 */
const SPANS = 3;
const SESSIONS = 1000;
const LOCKS = 10_000;
/** The share of large numbers that remains with `quick`. */
const QUICK_PART = 1 / 50;

const spanMs = ({ scale: { quick } }: Field) => (quick ? QUICK_MS : SPAN_MS);
const partOf = (count: number, { scale: { quick } }: Field) => (quick ? count * QUICK_PART : count);

/** One process, in which nothing happens except renewals. */
async function idle(field: Field, process: ContenderProcess) {
  const spans = [];
  for (let i = 0; i < SPANS; i++) spans.push(await idleSpan(field, process));
  return spans.toSorted((one, other) => one.percent - other.percent)[1]!;
}

async function idleSpan(field: Field, process: ContenderProcess) {
  const { cpuMicros, span, spent } = await measure([process], field, spanMs(field));
  const micros = (span.to - span.from) / 1000;
  const streams = await etcdOf(field).streams("LeaseKeepAlive");
  const renewals = ((spent?.["LeaseKeepAlive"] ?? 0) / RENEWALS) * ((SPAN_MS * 1000) / micros);
  return { percent: (100 * cpuMicros) / micros, renewals, streams };
}

async function manySessions(field: Field) {
  const processes = await field.crew.processes(1);
  const [process] = processes as readonly [ContenderProcess];
  await open(field, processes, [partOf(SESSIONS, field)]);
  const figures = await idle(field, process);
  await process.stop();
  return figures;
}

/** `cycles`: each lock is taken and released so often; held if undefined. */
async function manyLocks(field: Field, cycles?: number) {
  const processes = await field.crew.processes(1);
  const [process] = processes as readonly [ContenderProcess];
  const contenders = partOf(LOCKS, field);
  await open(field, processes, [1]);
  const { heapBytes: before } = await process.look({ collect: true });
  await startAll(processes, [{ ...cycling(cycles), name: field.name, names: "each", contenders, forMs: 0 }]);
  await untilGranted(process, contenders * (cycles ?? 1));
  if (!field.scale.quick) await etcdOf(field).calm();
  if (!field.scale.quick && cycles !== undefined) await delay(LISTED_MS);
  const { heapBytes: after } = await process.look({ collect: true });
  const figures = await idle(field, process);
  const watches = await etcdOf(field).watches();
  await process.stop();
  return { ...figures, watches, heap: (after - before) / contenders / 1024 };
}

const cycling = (cycles: number | undefined) =>
  ({ kind: "cycle", ...(cycles !== undefined && { cycles, holdMs: 0 }) }) as const;

/** The first lock of a name is plain, and the key of the second one stays. */
const UNTIL_KEPT = 2;

const ONE_SESSION = `${LOCKS.toLocaleString("en")} locks held by one session`;
const ALL_SESSIONS = `${SESSIONS.toLocaleString("en")} sessions of one process`;
const KEPT = `${LOCKS.toLocaleString("en")} locks kept by one session, and held by nobody`;
const peers = ["leasehold", "go"] as const;

export const idleness: Question = {
  name: "idle",
  title: `What costs ${TTL_SECONDS} s in which nothing happens`,
  members: 1,
  columns: [
    { figure: "percent", title: "% of a core" },
    { figure: "renewals", title: "renewals per TTL/3" },
    { figure: "streams", title: "keepalive streams" },
    { figure: "watches", title: "watches" },
    { figure: "heap", title: "KiB of heap per lock" },
  ],
  cases: () => [
    { name: ALL_SESSIONS, peers, rounds: 1, run: manySessions },
    { name: ONE_SESSION, peers, rounds: 1, run: (field) => manyLocks(field) },
    { name: KEPT, peers: ["leasehold-sticky"], rounds: 1, run: (field) => manyLocks(field, UNTIL_KEPT) },
  ],
  // Shares of a core and heap: as much as with the transport etcd3.
  targets: [
    {
      title: "% of a core for 1,000 sessions",
      ...{ case: ALL_SESSIONS, peer: "leasehold", figure: "percent", bound: { atMost: 2.8 } },
    },
    {
      title: "keepalive streams for 1,000 sessions",
      ...{ case: ALL_SESSIONS, peer: "leasehold", figure: "streams", bound: { atMost: 1 } },
    },
    {
      title: "% of a core for 10,000 held locks",
      ...{ case: ONE_SESSION, peer: "leasehold", figure: "percent", bound: { atMost: 0.074 } },
    },
    {
      title: "% of a core for 10,000 kept locks",
      ...{ case: KEPT, peer: "leasehold-sticky", figure: "percent", bound: { atMost: 0.05 } },
    },
    {
      title: "KiB of heap for each of 10,000 held locks",
      ...{ case: ONE_SESSION, peer: "leasehold", figure: "heap", bound: { atMost: 5.3 } },
    },
    {
      // One more may fall into the span.
      title: "renewals per TTL/3 for 10,000 held locks",
      ...{ case: ONE_SESSION, peer: "leasehold", figure: "renewals", bound: { atMost: 1.34 } },
    },
  ],
};
