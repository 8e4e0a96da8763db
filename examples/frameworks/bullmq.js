// @ts-check
// A worker of BullMQ 5 in which jobs with one key run one at a time, in all processes:
//   const worker = lockedWorker("mails", { cluster, keyOf: (job) => job.data.user, work, connection });
// A job whose key is busy waits in Redis and costs no attempt. One that has lost its lock fails, and BullMQ repeats it as often as
// its `attempts` say: pass `lock.fence` to what the job writes.
import { DelayedError, Worker } from "bullmq";
import { isLeaseholdError, Mutex } from "leasehold";

const WAIT_MS = 1000;
const AGAIN_MS = 1000;

/**
 * @typedef {import("bullmq").WorkerOptions & {
 *   cluster: import("leasehold").Cluster,
 *   keyOf: (job: import("bullmq").Job) => string,
 *   work: (job: import("bullmq").Job, lock: import("leasehold").Lock) => unknown,
 * }} Options
 */

/** @param {string} queue @param {Options} options */
export const lockedWorker = (queue, { cluster, keyOf, work, ...options }) =>
  new Worker(
    queue,
    async (job, token) => {
      const mutex = new Mutex(cluster, `${queue}/${keyOf(job)}`);
      try {
        return await mutex.withLock((lock) => work(job, lock), { timeoutMs: WAIT_MS });
      } catch (error) {
        if (!isLeaseholdError(error, "LOCK_TIMEOUT")) throw error;
        await job.moveToDelayed(Date.now() + AGAIN_MS, token);
        throw new DelayedError();
      }
    },
    options,
  );
