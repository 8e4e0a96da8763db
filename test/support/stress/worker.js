// One process of a stress run: random use of the public API, each step written down before and after it is taken.
// Argument: a JSON Task. Messages: "finish" = end what runs and start nothing new (answers "idle"); "close" = close all.
import { openSync } from "node:fs";
import { once } from "node:events";

import { Lane } from "./lane.js";
import { connect } from "./leasehold.js";
import { now, record } from "./journal.js";
import { Register } from "./register.js";

/**
 * @typedef {object} Task
 * @property {string} p this incarnation
 * @property {string} seed
 * @property {readonly string[]} hosts
 * @property {readonly string[]} locks
 * @property {string} registers
 * @property {number} ttlSeconds
 * @property {string} journal
 */

/** @type {Task} */
const task = JSON.parse(process.argv[2] ?? "");
const fd = openSync(task.journal, "a");
const { p, seed, hosts, ttlSeconds } = task;

// An orchestrator that died takes its workers along.
process.once("disconnect", () => process.exit(70));
for (const event of ["uncaughtException", "unhandledRejection"])
  process.on(event, (error) => {
    record(fd, { k: "crash", t: now(), p, event, err: String(error?.stack ?? error) });
    process.exit(71);
  });
process.on("warning", (warning) =>
  record(fd, { k: "crash", t: now(), p, event: "warning", err: String(warning) }),
);

const shared = { ttlSeconds, owner: `${p}/shared` };
const cluster = connect({ hosts, requestTimeoutMs: 1000, session: shared });
const register = new Register(hosts, task.registers, Number(/\d+/.exec(p)?.[0]));

let finishing = false;
const context = {
  ...{ p, cluster, register, ttlSeconds, locks: task.locks },
  finishing: () => finishing,
  /** @param {object} step */
  note: (step) => record(fd, { t: now(), p, ...step }),
};
const lanes = ["own", "other", "shared", "shared"].map(
  (kind, n) => new Lane(context, { n, kind, seed: `${seed} ${p} ${n}` }),
);
const running = Promise.all(lanes.map((lane) => lane.run()));

await told("finish");
finishing = true;
await running;
const closing = told("close");
process.send?.("idle");
await closing;
await Promise.all(lanes.map((lane) => lane.close()));
await cluster.close();
register.close();
// Nothing is left that keeps the process alive: it ends by itself.
process.removeAllListeners("disconnect");
process.disconnect();

/** @param {string} what */
async function told(what) {
  for (;;) {
    const [message] = await once(process, "message");
    if (message === what) return;
  }
}
