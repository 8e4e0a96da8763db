// A process that takes a lock and holds it: `holder-program.js HOSTS NAME TTL OWNER`, forked. It sends { held: FENCE } when it
// has the lock, then each message of the channels `leasehold.hold.end` and `leasehold.session`, and each line of its log, as
// { event: NAME, message }; the end of a hold with the cause of its reason. The message { blockMs } blocks its event loop for that time.
import { subscribe } from "node:diagnostics_channel";
import { connect, Mutex } from "leasehold";

const [hosts = "", name = "", ttlSeconds = "2", owner = ""] = process.argv.slice(2);

/** Errors and bigints as JSON. @param {string} _ @param {unknown} value */
const plain = (_, value) => (typeof value === "bigint" ? String(value) : value);
/** @param {object} message */
const send = (message) => process.connected && process.send?.(JSON.parse(JSON.stringify(message, plain)));

for (const event of ["leasehold.hold.end", "leasehold.session"])
  subscribe(event, (/** @type {any} */ message) =>
    send({ event, message: { ...message, cause: message.reason?.cause } }),
  );
const line = (/** @type {string} */ level) => (/** @type {string} */ text) =>
  void send({ event: "log", message: `${level} ${text}` });
const log = { warn: line("warn"), error: line("error") };

process.on("message", (/** @type {{ blockMs: number }} */ { blockMs }) => {
  const end = performance.now() + blockMs;
  while (performance.now() < end);
});
process.on("disconnect", () => process.exit());
const cluster = connect({
  hosts,
  requestTimeoutMs: 500,
  session: { ttlSeconds: Number(ttlSeconds), owner },
  log,
});
const lock = await new Mutex(cluster, name).lock();
send({ held: lock.fence });
