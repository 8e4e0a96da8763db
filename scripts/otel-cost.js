// `node scripts/otel-cost.js`: the processor time of a client for each lock and release of one name, with `instrument()` of
// leasehold/otel and without. Spans go to a processor that drops them, and metrics to a reader that reads them at the end.
// Each figure is that of a process of its own, because Node.js compiles the code anew when a channel gets subscribers. The
// processes take turns on one etcd, so that what else the machine does falls on both alike. Exit code 1: more than MOST
// times as much in one of the cases.
import { MeterProvider, MetricReader } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, NoopSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { execFile } from "node:child_process";
import { parseArgs, promisify } from "node:util";
import { connect, Mutex } from "leasehold";
import { instrument } from "leasehold/otel";
import { startEtcd } from "../test/support/etcd/etcd.js";

const MOST = 1.15;
/** Contenders in one process. One alone never waits. */
const CASES = [1, 2, 10];
const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "7" },
    cycles: { type: "string", default: "8000" },
    // Of a process that measures.
    child: { type: "string" },
    contenders: { type: "string", default: "1" },
    on: { type: "boolean", default: false },
  },
});
const [rounds, cycles] = [Number(values.rounds), Number(values.cycles)];

class ManualReader extends MetricReader {
  async onShutdown() {}
  async onForceFlush() {}
}

function instrumented() {
  const reader = new ManualReader();
  instrument({
    tracerProvider: new BasicTracerProvider({ spanProcessors: [new NoopSpanProcessor()] }),
    meterProvider: new MeterProvider({ readers: [reader] }),
  });
  return reader;
}

/**
 * Prints the microseconds for each lock and release.
 *
 * @param {string} hosts
 */
async function measure(hosts) {
  const reader = values.on ? instrumented() : undefined;
  const clusters = Array.from({ length: Number(values.contenders) }, () => connect({ hosts }));
  let left = 0;
  const contend = async (/** @type {Mutex} */ mutex) => {
    while (left-- > 0) await (await mutex.lock()).release();
  };
  const run = (/** @type {number} */ times) => {
    left = times;
    return Promise.all(
      clusters.map((cluster) => contend(new Mutex(cluster, "otel/cost", { label: "cost" }))),
    );
  };
  // Until the code is compiled.
  await run(cycles / 2);
  const before = process.cpuUsage();
  await run(cycles);
  await reader?.collect();
  const { user, system } = process.cpuUsage(before);
  console.log((user + system) / cycles);
  for (const cluster of clusters) await cluster.close();
}

/** @param {readonly number[]} numbers */
const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? NaN;

/** @param {string} hosts @param {number} contenders */
async function compare(hosts, contenders) {
  const cost = async (/** @type {boolean} */ on) => {
    const args = ["--child", hosts, "--contenders", `${contenders}`, "--cycles", `${cycles}`];
    const { stdout } = await promisify(execFile)(process.execPath, [
      import.meta.filename,
      ...args,
      ...(on ? ["--on"] : []),
    ]);
    return Number(stdout);
  };
  /** @type {{ off: number, on: number }[]} */
  const measured = [];
  for (let n = 0; n < rounds; n++) {
    const first = await cost(n % 2 === 0);
    const second = await cost(n % 2 !== 0);
    measured.push(n % 2 === 0 ? { on: first, off: second } : { on: second, off: first });
  }
  const [off, on] = [median(measured.map((each) => each.off)), median(measured.map((each) => each.on))];
  const ratio = median(measured.map((each) => each.on / each.off));
  const figures = `${off.toFixed(0)} µs without, ${on.toFixed(0)} µs with`;
  console.log(`${contenders} contenders: ${figures}: ${ratio.toFixed(3)} times as much`);
  return ratio;
}

async function main() {
  const etcd = await startEtcd();
  try {
    console.log(`Node ${process.version}; medians of ${rounds} rounds of ${cycles} locks; at most ${MOST}`);
    for (const contenders of CASES)
      if ((await compare(String(etcd.endpoints), contenders)) > MOST) process.exitCode = 1;
  } finally {
    await etcd.stop();
  }
}

await (values.child ? measure(values.child) : main());
