// `node scripts/otel-cost.js`: the processor time of a client that locks and releases one name, with `instrument()` of
// leasehold/otel and without. Spans go to a processor that drops them, metrics are read once a round. Both take turns in one
// process on one etcd, so that what else the machine does falls on both alike. Exit code 1: more than MOST times as much.
import { MeterProvider, MetricReader } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, NoopSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { parseArgs } from "node:util";
import { connect, Mutex } from "leasehold";
import { instrument } from "leasehold/otel";
import { startEtcd } from "../test/support/etcd/etcd.js";

const MOST = 1.15;
/** Rounds that do not count: Node.js still compiles. */
const WARM_UP = 4;
/** Locks at the start of a round that do not count: a channel that gets or loses its subscribers is compiled again. */
const UNCOUNTED = 300;
const { values } = parseArgs({
  options: { rounds: { type: "string", default: "10" }, cycles: { type: "string", default: "2000" } },
});
const [rounds, cycles] = [Number(values.rounds), Number(values.cycles)];

class ManualReader extends MetricReader {
  async onShutdown() {}
  async onForceFlush() {}
}

const reader = new ManualReader();
const sdk = {
  tracerProvider: new BasicTracerProvider({ spanProcessors: [new NoopSpanProcessor()] }),
  meterProvider: new MeterProvider({ readers: [reader] }),
};
const etcd = await startEtcd();
const cluster = connect({ hosts: etcd.endpoints });
const mutex = new Mutex(cluster, "otel/cost", { label: "cost" });

/** @returns {Promise<number>} microseconds for each lock and release */
async function cost() {
  for (let n = 0; n < UNCOUNTED; n++) await (await mutex.lock()).release();
  const before = process.cpuUsage();
  for (let n = 0; n < cycles; n++) await (await mutex.lock()).release();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / cycles;
}

async function costInstrumented() {
  const instrumentation = instrument(sdk);
  try {
    return await cost();
  } finally {
    await reader.collect();
    instrumentation.disable();
  }
}

/** @param {readonly number[]} numbers */
const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? NaN;

try {
  /** @type {number[]} */
  const off = [];
  /** @type {number[]} */
  const on = [];
  for (let n = -WARM_UP; n < rounds; n++) {
    const first = n % 2 === 0 ? await cost() : await costInstrumented();
    const second = n % 2 === 0 ? await costInstrumented() : await cost();
    if (n < 0) continue;
    off.push(n % 2 === 0 ? first : second);
    on.push(n % 2 === 0 ? second : first);
  }
  const ratio = median(on) / median(off);
  const figures = `${median(off).toFixed(0)} µs without, ${median(on).toFixed(0)} µs with`;
  console.log(
    `${figures}: ${ratio.toFixed(3)} times as much (medians of ${rounds} rounds of ${cycles} locks)`,
  );
  process.exitCode = ratio <= MOST ? 0 : 1;
} finally {
  await cluster.close();
  await etcd.stop();
}
