// A crowd of waiters in one process: its memory, and how it joins and drains.
import { setTimeout as delay } from "node:timers/promises";
import type { ContenderProcess } from "../frame/contender-process.js";
import { etcdOf, type Field } from "../frame/field.js";
import { callsOf, open, startAll, untilGranted } from "../frame/measure.js";
import type { Question } from "./question.js";

const WAITERS = 10_000;
const QUICK_WAITERS = 200;
const ROUNDS = 3;
/** Lets the event loop turn after the work that the bench itself has caused. */
const TURN_MS = 100;

async function joinAndDrain(field: Field) {
  const contenders = field.scale.quick ? QUICK_WAITERS : WAITERS;
  const processes = await field.crew.processes(1);
  const [process] = processes as readonly [ContenderProcess];
  await open(field, processes, [1]);
  const unblock = await etcdOf(field).block(field.name);
  const { heapBytes: before } = await process.look({ collect: true });
  const counter = await etcdOf(field).meter();

  const task = { kind: "cycle", name: field.name, names: "one", cycles: 1, holdMs: 0, forMs: 0 } as const;
  await startAll(processes, [{ ...task, contenders, stalls: true }]);
  await etcdOf(field).calm();
  const joined = await process.look();
  const { heapBytes: after } = await process.look({ collect: true });
  await delay(TURN_MS);
  await process.look();

  const begun = performance.now();
  await unblock();
  const drained = await untilGranted(process, contenders);
  const seconds = (performance.now() - begun) / 1000;
  const rpcs = callsOf(await counter.read()) / contenders;
  await process.stop();
  return {
    ...{ heap: (after - before) / contenders / 1024, rate: contenders / seconds, rpcs },
    stall: Math.max(joined.stallMs, drained.stallMs),
  };
}

const CASE = `${WAITERS.toLocaleString("en")} waiters, one session`;
const ours = { case: CASE, peer: "leasehold" } as const;

export const crowd: Question = {
  name: "crowd",
  title: "A crowd of waiters on one name in one process",
  members: 1,
  columns: [
    { figure: "heap", title: "KiB of heap each" },
    { figure: "rate", title: "drained/s" },
    { figure: "stall", title: "longest stall ms" },
    { figure: "rpcs", title: "RPCs each" },
  ],
  cases: () => [{ name: CASE, peers: ["leasehold"], rounds: ROUNDS, run: joinAndDrain }],
  // Heap, rate and stall: as good as with the transport etcd3.
  targets: [
    { ...ours, title: "KiB of heap each", figure: "heap", bound: { atMost: 3.8 } },
    { ...ours, title: "drained per second", figure: "rate", bound: { atLeast: 830 } },
    { ...ours, title: "longest stall in ms", figure: "stall", bound: { atMost: 16 } },
    { ...ours, title: "RPCs each", figure: "rpcs", bound: { atMost: 3.01 } },
  ],
};
