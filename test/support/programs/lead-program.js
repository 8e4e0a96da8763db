// A service with several replicas in one process: `node lead-program.js HOSTS NAME CANDIDATES TTL DRAIN_MS`. Each line
// of its output is an event of its work, on the monotonic clock that all processes of one machine share. SIGTERM stops
// it: running work takes another DRAIN_MS, and fails if its leadership has not lasted.
import { setTimeout as delay } from "node:timers/promises";
import { connect, lead } from "leasehold";

const [hosts = "", name = "", candidates = "1", ttlSeconds = "2", drainMs = "0"] = process.argv.slice(2);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort(new Error("SIGTERM")));

/** @param {string} what @param {string} id @param {bigint} fence */
const tell = (what, id, fence) =>
  process.stdout.write(
    `${JSON.stringify({ what, id, fence: String(fence), at: String(process.hrtime.bigint()) })}\n`,
  );

/** @param {AbortSignal} signal */
const abortOf = (signal) =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener("abort", resolve, { once: true });
  });

const cluster = connect({ hosts: hosts.split(",") });
const services = Array.from({ length: Number(candidates) }, (_, n) => {
  const id = `${process.pid}-${n}`;
  return lead(
    cluster,
    name,
    async (leadership) => {
      tell("begin", id, leadership.fence);
      await abortOf(leadership.signalWith(stop.signal));
      await delay(Number(drainMs));
      leadership.assertHeld();
      tell("end", id, leadership.fence);
    },
    { ttlSeconds: Number(ttlSeconds), owner: id, signal: stop.signal },
  );
});
await Promise.all(services);
await cluster.close();
