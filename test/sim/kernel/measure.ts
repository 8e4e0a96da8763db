// node --import tsx test/sim/kernel/measure.ts: events per second of the ways to drain microtasks after each event.
import { MessageChannel } from "node:worker_threads";
import { AbortFanOut } from "../../../src/base/util/abort.js";
import { drainByCheckpoint, drainByTick, type Drain } from "./drain.js";
import { Kernel } from "./kernel.js";

/** What one event causes. Calls `done` in its last microtask. */
type Load = (done: () => void) => void;

async function chain(depth: number): Promise<void> {
  for (let n = 0; n < depth; n++) await Promise.resolve();
}

const aborts = new AbortFanOut();
const shared = new AbortController().signal;

async function* twoSteps(): AsyncGenerator<number> {
  yield await Promise.resolve(1);
  yield await Promise.resolve(2);
}

async function iterate(): Promise<void> {
  for await (const step of twoSteps()) if (step < 0) throw new Error();
}

/** As a call does it: a shared signal, one of its own that aborts, and a composite. */
async function listen(): Promise<void> {
  const own = new AbortController();
  const stop = aborts.add(shared, () => {});
  const either = AbortSignal.any([own.signal, shared]);
  const aborted = new Promise<void>((resolve) => either.addEventListener("abort", () => resolve()));
  own.abort();
  await aborted;
  stop();
}

const LOADS: Readonly<Record<string, Load>> = {
  nothing: (done) => done(),
  "promises, 8 deep": (done) => void chain(8).then(done),
  "async generator": (done) => void iterate().then(done),
  "abort listeners": (done) => void listen().then(done),
};

/** Events per second of a chain of events, each scheduled by the last microtask of the one before. */
async function onKernel(load: Load, events: number, drain: Drain): Promise<number> {
  const kernel = new Kernel("measure", { drain });
  let left = events;
  const next = (): void => void (left-- > 0 && kernel.after(1, () => load(next)));
  next();
  const start = performance.now();
  await kernel.run(() => false, Infinity);
  if (left >= 0) throw new Error(`the drain left microtasks: ${left} events did not run`);
  return (events / (performance.now() - start)) * 1000;
}

/** The same load with a turn of the event loop after each event. */
async function byTurns(load: Load, events: number, turn: () => Promise<void>): Promise<number> {
  let done = 0;
  const start = performance.now();
  for (let n = 0; n < events; n++) {
    load(() => void done++);
    await turn();
  }
  if (done !== events) throw new Error("the turn left microtasks");
  return (events / (performance.now() - start)) * 1000;
}

const immediate = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function messages(): { readonly turn: () => Promise<void>; readonly close: () => void } {
  const { port1, port2 } = new MessageChannel();
  let resolve: () => void = () => {};
  port1.on("message", () => resolve());
  const turn = (): Promise<void> =>
    new Promise((done) => {
      resolve = done;
      port2.postMessage(0);
    });
  return { turn, close: () => port1.close() };
}

const EVENTS = 100_000;
const checkpoint = drainByCheckpoint();
const channel = messages();
console.log(`Node.js ${process.version}, ${EVENTS} events, events per second:`);
for (const [name, load] of Object.entries(LOADS)) {
  const rates: [string, number][] = [];
  for (let round = 0; round < 2; round++) {
    rates.length = 0;
    rates.push(["tick", await onKernel(load, EVENTS, drainByTick)]);
    rates.push(["checkpoint", await onKernel(load, EVENTS, checkpoint)]);
    rates.push(["setImmediate", await byTurns(load, EVENTS, immediate)]);
    rates.push(["MessageChannel", await byTurns(load, EVENTS / 5, channel.turn)]);
  }
  console.log(name.padEnd(18), rates.map(([how, rate]) => `${how} ${Math.round(rate / 1000)}k`).join("  "));
}
channel.close();
