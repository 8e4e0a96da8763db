// @ts-check
// croner in every replica, and no tick of an outage is forgotten: when a replica runs again, those that nobody has run are run late, each once
// and in order. MISSED=last runs the latest of them only.
import { setTimeout as delay } from "node:timers/promises";
import { Cron } from "croner";
import { catchUp, connect } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15" } = process.env;
const { JOBS = "report", SCHEDULE = "* * * * *", MISSED = "all", WORK_MS = "1000" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const stop = new AbortController();
/** A job that has never run begins here. */
const start = new Date();

const crons = JOBS.split(",").map((job) => {
  // While ticks run late, those that become due meanwhile are run by the same call.
  const options = { timezone: "UTC", protect: true, catch: report };
  const cron = new Cron(SCHEDULE, options, (self) => run(job, self));
  // Not at the next tick only, which may be tomorrow.
  void cron.trigger();
  return cron;
});
console.log("scheduled");

process.once("SIGTERM", () => {
  for (const cron of crons) cron.stop();
  stop.abort();
  // Waits up to 30 s for a tick that runs.
  void cluster.close({ drainMs: 30_000 });
});

/** @param {string} job @param {Cron} cron */
async function run(job, cron) {
  const missed = MISSED === "last" ? "last" : "all";
  const ticks = (/** @type {Date | undefined} */ last) => ticksAfter(cron, last ?? start);
  await catchUp(cluster, `cron/${job}`, ticks, (tick) => work(job, tick), { missed, signal: stop.signal });
}

/** @param {Cron} cron @param {Date} last */
function* ticksAfter(cron, last) {
  for (let tick = cron.nextRun(last); tick; tick = cron.nextRun(tick)) yield tick;
}

/** @param {string} job @param {import("leasehold").Tick} tick */
async function work(job, { date, lateMs }) {
  const name = `${job}:${date.toISOString()}`;
  console.log(`${name} begun, ${Math.round(lateMs / 1000)} s late`);
  await delay(Number(WORK_MS));
  console.log(`${name} ended`);
}

/** A tick that has failed is not run again. Those that etcd has kept from running are still due at the next one. @param {unknown} error */
function report(error) {
  if (!stop.signal.aborted) console.error(error);
}
