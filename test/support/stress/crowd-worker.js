// One process of a crowd: many waiters on one name at once, each step written down as in a stress run.
// Argument: a JSON CrowdTask. Messages: "abort" = give up every n-th call; "close" = close all and end.
import { openSync } from "node:fs";
import { once } from "node:events";
import { now, record } from "./journal.js";
import { connect, Mutex, Session } from "./leasehold.js";
/** @import { Lock } from "../../../src/index.js" */

/**
 * @typedef {object} CrowdTask
 * @property {string} p
 * @property {readonly string[]} hosts
 * @property {string} name
 * @property {number} calls
 * @property {number} abortEvery
 * @property {number} ttlSeconds
 * @property {string} journal
 */

/** @type {CrowdTask} */
const task = JSON.parse(process.argv[2] ?? "");
const { p, name: lock, calls, abortEvery, ttlSeconds } = task;
const fd = openSync(task.journal, "a");
/** @param {object} step */
const note = (step) => record(fd, { t: now(), p, lock, ...step });
process.once("disconnect", () => process.exit(70));

const cluster = connect({ hosts: task.hosts });
const session = await Session.open(cluster, { ttlSeconds, owner: p });
const mutex = new Mutex(session, lock);

const callers = Array.from({ length: calls }, (_, id) => wait(id));
process.send?.("waiting");
await told("abort");
for (const { id, giveUp } of callers) if (id % abortEvery === 0) giveUp();
await Promise.all(callers.map(({ ended }) => ended));
process.send?.("drained");
await told("close");
await session.close();
await cluster.close();
process.removeAllListeners("disconnect");
process.disconnect();

/** @param {number} id */
function wait(id) {
  const controller = new AbortController();
  note({ k: "invoke", f: "acquire", id, owner: p });
  const ended = mutex.lock({ signal: controller.signal }).then(
    (hold) => use(id, hold),
    (error) => note({ k: "fail", f: "acquire", id, err: error.code ?? error.name }),
  );
  return { id, ended, giveUp: () => controller.abort() };
}

/** @param {number} id @param {Lock} hold */
async function use(id, hold) {
  const token = hold.fence;
  const t = now();
  note({ t, k: "ok", f: "acquire", id, token, key: hold.key, held: hold.held });
  await new Promise(setImmediate);
  const before = now();
  note({ t: before, k: "claim", id, token, held: hold.held });
  note({ k: "invoke", f: "release", id });
  await hold.release();
  note({ k: "ok", f: "release", id });
}

/** @param {string} what */
async function told(what) {
  for (;;) {
    const [message] = await once(process, "message");
    if (message === what) return;
  }
}
