// @ts-check
// node-cron in every replica, and each tick runs in one of them: the coordinator asks etcd, whatever the clocks say.
import { setTimeout as delay } from "node:timers/promises";
import { connect, once } from "leasehold";
import cron from "node-cron";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15" } = process.env;
const { JOBS = "report", SCHEDULE = "* * * * *", WORK_MS = "1000" } = process.env;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });

/** Ends the run of a tick, and resolves when etcd knows. @type {Map<string, () => Promise<void>>} */
const running = new Map();

/** @type {import("node-cron").RunCoordinator} */
const coordinator = {
  /** node-cron asks before each run. The key is the name of the task, a colon, and the time of the tick in ISO 8601. */
  shouldRun(key) {
    const [, job = "", time = ""] = /^(.*?):(\d{4}-.*Z)$/.exec(key) ?? [];
    /** @type {Promise<boolean>} */
    const allowed = new Promise((resolve, reject) => {
      const begin = () => {
        resolve(true);
        return new Promise((end) => running.set(key, () => (end(undefined), settled)));
      };
      // A tick that comes while the one before still runs, in any replica, is skipped: late ticks would pile up.
      const ended = once(cluster, `cron/${job}`, Date.parse(time), begin, { ifHeld: "skip" });
      const settled = ended.then((result) => {
        if (!result.ran) console.log(`${key} not run here: ${result.reason}`);
        resolve(result.ran);
      });
      // After the work has begun, this is a lost lock: `onComplete` rejects, and node-cron logs it.
      settled.catch(reject);
    });
    return allowed;
  },

  async onComplete(key) {
    const end = running.get(key);
    running.delete(key);
    await end?.();
  },
};

cron.setRunCoordinator(coordinator);
for (const job of JOBS.split(","))
  cron.schedule(SCHEDULE, ({ date }) => work(`${job}:${date.toISOString()}`), {
    ...{ name: job, distributed: true, timezone: "UTC" },
  });
console.log("scheduled");
process.once("SIGTERM", () => void cron.shutdown(10_000).then(() => cluster.close()));

/** @param {string} tick */
async function work(tick) {
  console.log(`${tick} begun`);
  await delay(Number(WORK_MS));
  console.log(`${tick} ended`);
}
