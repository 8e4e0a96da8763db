// @ts-check
// The observer: a separate process that records what etcd's watch delivers, independently of the workers.
import { EtcdClient } from "./client.js";
import { now, writeChange } from "./history.js";
import { obey, tell } from "./parent.js";
import { LiveQueue } from "./live-queue.js";

/**
 * @typedef {object} ObserverJob
 * @property {string[]} endpoints
 * @property {string} prefix
 * @property {string} lock
 * @property {string} counter
 * @property {string} folder
 */

const job = /** @type {ObserverJob} */ (JSON.parse(process.argv[2] ?? ""));
const mark = `${job.prefix}/end`;
const etcd = new EtcdClient(job.endpoints);

async function observe() {
  const revision = await etcd.revision();
  const queue = new LiveQueue(job.lock);
  tell({ k: "observing", revision });
  for await (const change of etcd.watch(`${job.prefix}/`, revision)) {
    if (change.key === mark) break;
    writeChange(job.folder, { t: now(), ...change });
    if (queue.apply(change)) tell({ k: "queue", places: queue.places });
    if (change.key === job.counter) tell({ k: "counted", ...JSON.parse(change.value) });
  }
  writeChange(job.folder, { complete: true });
}

/** The mark is the last change of the run: a watch that has delivered it has delivered everything before it. */
async function finish() {
  await etcd.put(mark, "", { forMs: 10_000 });
  await observing;
  etcd.close();
  process.disconnect?.();
}

obey(() => void finish().catch(fail));
const observing = observe();
observing.catch(fail);

/** @param {unknown} error */
function fail(error) {
  console.error(`observer: ${/** @type {Error} */ (error).message}`);
  process.exit(1);
}
