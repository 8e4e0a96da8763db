// What of the library runs while a free lock is taken and released on a real etcd, for figures.js.
import { createHook } from "node:async_hooks";
import { Session } from "node:inspector/promises";
import { startEtcd } from "../test/support/etcd/etcd.js";

/** The lease and the connection are there then. */
const WARM_UP = 20;

/** @typedef {Record<"files" | "functions" | "calls" | "promises" | "frames down to the socket", number>} Trace */

/** @param {string} dist the URL of a folder of modules @returns {Promise<{ lock: Trace, release: Trace }>} */
export async function traceLock(dist) {
  const etcd = await startEtcd();
  /** @type {typeof import("../dist/index.js")} */
  const { connect, Mutex } = await import(`${dist}/index.js`);
  const cluster = connect({ hosts: etcd.endpoints });
  try {
    const mutex = new Mutex(cluster, "figures");
    for (let n = 0; n < WARM_UP; n++) await (await mutex.lock()).release();
    const { value: lock, ...taking } = await traced(dist, () => mutex.lock());
    const { value: _, ...releasing } = await traced(dist, () => lock.release());
    return { lock: taking, release: releasing };
  } finally {
    await cluster.close();
    await etcd.stop();
  }
}

/**
 * @template T
 * @param {string} dist
 * @param {() => Promise<T>} call
 * @returns {Promise<Trace & { value: T }>}
 */
async function traced(dist, call) {
  const inspector = new Session();
  inspector.connect();
  await inspector.post("Profiler.enable");
  await inspector.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  // What was called before counts as called once.
  await inspector.post("Profiler.takePreciseCoverage");
  const stacks = await stacksOfWrites(dist);
  let promises = 0;
  const hook = createHook({ init: (_id, type) => void (type === "PROMISE" && promises++) });
  hook.enable();
  // The promise of an async function is counted like all others, that of this await is not the library's.
  const running = call();
  const value = await running;
  hook.disable();
  const frames = stacks.end();
  const { result } = await inspector.post("Profiler.takePreciseCoverage");
  inspector.disconnect();
  const files = result.filter(({ url, functions }) => url.startsWith(dist) && functions.some(isCalled));
  const functions = files.flatMap((file) => file.functions.filter(isCalled));
  const calls = functions.reduce((sum, { ranges }) => sum + (ranges[0]?.count ?? 0), 0);
  return {
    ...{ files: files.length, functions: functions.length, calls, promises: promises - 1 },
    ...{ "frames down to the socket": frames, value },
  };
}

/** @param {import("node:inspector").Profiler.FunctionCoverage} covered */
const isCalled = ({ functionName, ranges }) => functionName !== "" && (ranges[0]?.count ?? 0) > 0;

/**
 * The frames of the library on the stack, or awaited, when it hands bytes to the socket.
 * @param {string} dist
 */
async function stacksOfWrites(dist) {
  /** @type {typeof import("../dist/etcd/http2/socket.js")} */
  const { SocketWriter } = await import(`${dist}/etcd/http2/socket.js`);
  const { write } = SocketWriter.prototype;
  const limit = Error.stackTraceLimit;
  let most = 0;
  Error.stackTraceLimit = 200;
  SocketWriter.prototype.write = function (/** @type {Buffer} */ bytes) {
    const lines = (new Error().stack ?? "").split("\n");
    most = Math.max(most, lines.filter((line) => line.includes(dist)).length);
    return write.call(this, bytes);
  };
  return {
    end() {
      SocketWriter.prototype.write = write;
      Error.stackTraceLimit = limit;
      return most;
    },
  };
}
