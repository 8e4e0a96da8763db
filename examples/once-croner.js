// @ts-check
// croner in every replica, and each tick runs in one of them, whatever their clocks say.
import { setTimeout as delay } from "node:timers/promises";
import { Cron } from "croner";
import { connect, once } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15" } = process.env;
const { JOBS = "report", SCHEDULE = "* * * * *", WORK_MS = "1000" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });

const crons = JOBS.split(",").map((job) => {
  const cron = new Cron(SCHEDULE, { paused: true, timezone: "UTC", catch: console.error });
  // The time that the schedule says, and not the time of the call, which differs between replicas.
  let due = cron.nextRun();
  cron.schedule(async () => {
    const slot = due?.getTime() ?? 0;
    due = cron.nextRun();
    await tick(job, slot);
  });
  cron.resume();
  return cron;
});
console.log("scheduled");

process.once("SIGTERM", () => {
  for (const cron of crons) cron.stop();
  // Waits up to 30 s for ticks that run.
  void cluster.close({ drainMs: 30_000 });
});

/** @param {string} job @param {number} slot */
async function tick(job, slot) {
  const name = `${job}:${new Date(slot).toISOString()}`;
  // A tick that comes while the one before still runs, in any replica, is skipped: late ticks would pile up.
  const result = await once(cluster, `cron/${job}`, slot, () => work(name), { ifHeld: "skip" });
  if (!result.ran) console.log(`${name} not run here: ${result.reason}`);
}

/** @param {string} tick */
async function work(tick) {
  console.log(`${tick} begun`);
  await delay(Number(WORK_MS));
  console.log(`${tick} ended`);
}
