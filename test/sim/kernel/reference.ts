// node --import tsx test/sim/kernel/reference.ts [seed]: prints a hash that must be the same on every version of Node.js.
import { pathToFileURL } from "node:url";
import { drainByTick, type Drain } from "./drain.js";
import { Kernel } from "./kernel.js";

const TASKS = 20;
const STEPS = 50;

/** A run of tasks with timers, promise chains, async generators and abort signals, all of which log. Returns the hash. */
export async function reference(seed: string, drain: Drain = drainByTick): Promise<string> {
  const kernel = new Kernel(seed, { drain });
  for (let n = 0; n < TASKS; n++) void task(kernel, `task ${n}`);
  await kernel.run(() => false, Infinity);
  kernel.log(`end, ${kernel.events} events`);
  return kernel.hash;
}

async function task(kernel: Kernel, name: string): Promise<void> {
  const random = kernel.random.fork(name);
  for await (const step of steps(kernel, name)) {
    const abort = new AbortController();
    const either = AbortSignal.any([abort.signal, new AbortController().signal]);
    either.addEventListener("abort", () => kernel.log(`${name} step ${step} aborted`));
    kernel.after(random.between(0, 10), () => abort.abort());
    await Promise.race([pause(kernel, random.int(10)), aborted(either)]);
    kernel.log(`${name} step ${step} done, ${random.id()}`);
  }
}

async function* steps(kernel: Kernel, name: string): AsyncGenerator<number> {
  const random = kernel.random.fork(`${name} pauses`);
  for (let step = 0; step < STEPS; step++) {
    yield step;
    await pause(kernel, random.next() * 3);
  }
}

const pause = (kernel: Kernel, ms: number): Promise<void> =>
  new Promise((resolve) => void kernel.after(ms, resolve));

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve()));

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href)
  console.log(process.version, await reference(process.argv[2] ?? "a seed"));
