// Reproduces etcd#15247 in isolation: the process of a leader is stopped for longer than the TTL and continues. Does it
// revoke the leases that its successor has kept alive? Prints one line per round and judges nothing.
//
//   node test/lab/paused-leader.js [--version 3.6] [--rounds 6] [--ttl 5] [--pause 6000] [--locks 9] [--build dist]
import path from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import { exitWhenMissing, startEtcd } from "../support/etcd/etcd.js";

const { values } = parseArgs({
  options: {
    version: { type: "string" },
    rounds: { type: "string", default: "6" },
    ttl: { type: "string", default: "5" },
    pause: { type: "string", default: "6000" },
    locks: { type: "string", default: "9" },
    build: { type: "string", default: "dist" },
  },
});
const [rounds, ttlSeconds] = [Number(values.rounds), Number(values.ttl)];
const [pauseMs, locks] = [Number(values.pause), Number(values.locks)];
/** The young holds are acquired this long before the end of the pause: they do not watch their own key yet. */
const YOUNG_MS = 300;
const SEEN_MS = 2500;
const url = pathToFileURL(path.resolve(values.build, "index.js")).href;
const { connect, Mutex, Session } = /** @type {typeof import("../../src/index.js")} */ (await import(url));

/** @typedef {{ ended?: number, granted?: number, revoked?: boolean }} Told times of a hold's end and of the next grant */
/** @typedef {import("../../src/index.js").Session} Session */

/** A hold, and what happens to it. @param {Session} session @param {string} name */
async function hold(session, name) {
  /** @type {Told} */
  const told = {};
  const lock = await new Mutex(session, name).lock();
  lock.signal.addEventListener("abort", () => {
    told.ended = performance.now();
    told.revoked = session.signal.reason?.loss === "revoked";
  });
  return told;
}

/** @param {Session} session @param {string} name @param {Told} told */
function waitBehind(session, name, told) {
  const granted = () => void (told.granted = performance.now());
  new Mutex(session, name).lock().then(granted, () => {});
}

/** @param {string} name @param {Told[]} all */
function report(name, all) {
  const overlaps = all.flatMap(({ granted = Infinity, ended = Infinity }) =>
    granted < ended ? [ended - granted] : [],
  );
  const revoked = all.filter((told) => told.revoked).length;
  const longest = Math.max(0, ...overlaps).toFixed(0);
  console.log(
    `${name}: ${revoked} of ${all.length} revoked, ${overlaps.length} overlapped, ${longest} ms at most`,
  );
}

/** @param {import("../support/etcd/etcd.js").EtcdCluster} etcd @param {number} n */
async function round(etcd, n) {
  const [holders, waiters] = [connect({ hosts: etcd.endpoints }), connect({ hosts: etcd.endpoints })];
  /** @param {typeof holders} cluster */
  const open = (cluster) =>
    Promise.all(Array.from({ length: 2 * locks }, () => Session.open(cluster, { ttlSeconds })));
  const sessions = await open(holders);
  /** @param {number} from @param {number} to */
  const holdAll = (from, to) =>
    Promise.all(sessions.slice(from, to).map((session, i) => hold(session, `round${n}/${from + i}`)));
  const old = await holdAll(0, locks);
  await delay(1500);
  const leader = await etcd.leader();
  leader.pause();
  await delay(pauseMs - YOUNG_MS);
  // With leases that the paused leader does not know and cannot revoke.
  const next = await open(waiters);
  const young = await holdAll(locks, 2 * locks);
  [...old, ...young].forEach((told, i) =>
    waitBehind(/** @type {Session} */ (next[i]), `round${n}/${i}`, told),
  );
  await delay(YOUNG_MS);
  leader.resume();
  await delay(SEEN_MS);
  report(`etcd ${etcd.version}, round ${n}, holds older than the pause`, old);
  report(`etcd ${etcd.version}, round ${n}, holds taken just before its end`, young);
  await Promise.all([holders, waiters].map((cluster) => cluster.close({ drainMs: 0 })));
}

const { version } = values;
const etcd = await startEtcd({ members: 3, ...(version !== undefined && { version }) }).catch(
  exitWhenMissing,
);
try {
  // On a busy machine a session may be lost during the pause itself: such a round shows nothing.
  for (let n = 1; n <= rounds; n++)
    await round(etcd, n).catch((/** @type {Error} */ error) => console.log(`round ${n}: ${error.message}`));
} finally {
  await etcd.stop();
}
