// @ts-check
// The nemesis: injects faults at times determined by the seed, and waits until work continues.
import { setTimeout as delay } from "node:timers/promises";

/** @typedef {"kill-holder" | "pause-holder" | "kill-leader"} FaultName */
/** @typedef {import("./stage.js").StageEvent} StageEvent */
/**
 * @typedef {object} Scene
 * @property {import("./stage.js").Stage} stage
 * @property {import("./crew.js").Crew} crew
 * @property {EtcdCluster | undefined} etcd
 * @property {import("./random.js").Random} random
 * @property {(entry: Record<string, unknown>) => StageEvent} record
 * @property {AbortSignal} signal
 */
/**
 * @typedef {object} EtcdCluster three members that are the demo's own
 * @property {string} what such as "3 members of etcd 3.4.23"
 * @property {string} why where it was found, or why it is this one: a sentence
 * @property {string[]} endpoints
 * @property {() => Promise<Member>} leader
 * @property {() => Promise<void>} stop
 */
/**
 * @typedef {object} Member
 * @property {string} name
 * @property {() => Promise<unknown>} kill
 * @property {() => Promise<unknown>} restart
 */

const PATIENCE_MS = 20_000;

/** Windows has no signal for it. */
export const CAN_FREEZE = process.platform !== "win32";

/**
 * @param {import("./random.js").Random} random
 * @param {boolean} ownEtcd if false, the servers may have other users and are left alone
 * @returns {FaultName[]}
 */
export function planFaults(random, ownEtcd) {
  /** @type {FaultName[]} */
  const faults = ["kill-holder"];
  if (CAN_FREEZE) faults.push("pause-holder");
  if (ownEtcd) faults.push("kill-leader");
  return random.shuffled(faults);
}

/**
 * @param {readonly FaultName[]} faults
 * @param {Scene} scene
 */
export async function injectFaults(faults, scene) {
  for (const fault of faults) {
    await quiet(scene);
    await INJECT[fault](scene);
  }
  await quiet(scene);
}

/** @type {Record<FaultName, (scene: Scene) => Promise<void>>} */
const INJECT = { "kill-holder": killHolder, "pause-holder": pauseHolder, "kill-leader": killLeader };

/** @param {Scene} scene */
const quiet = ({ random, signal }) => delay(random.between(800, 1600), undefined, { signal });

/** A worker between its read and its write, when a fault does the most harm. @param {Scene} scene */
async function someoneAtWork({ stage }) {
  const working = await stage.until(({ k, held }) => k === "working" && held, PATIENCE_MS);
  if (!working) throw new Error(`nobody held the lock for ${PATIENCE_MS / 1000} s`);
  return { target: String(working["p"]), fence: Number(working["fence"]) };
}

/** @param {Scene} scene */
async function killHolder(scene) {
  const holder = await someoneAtWork(scene);
  const { t } = scene.record({ k: "fault", fault: "kill-holder", ...holder });
  scene.record({ k: "kill", ...holder });
  scene.crew.kill(holder.target);
  await recovery(scene, { fault: "kill-holder", t, ...holder, fits: isHoldAfter(holder) });
}

/** @param {Scene} scene */
async function pauseHolder(scene) {
  const { stage, record } = scene;
  const { holder, t, thaw } = await freezeBeforeWrite(scene);
  try {
    record({ t, k: "fault", fault: "pause-holder", ...holder });
    await recovery(scene, { fault: "pause-holder", t, ...holder, fits: isHoldAfter(holder) });
    // Others have to write first: only then can a stale write destroy something.
    const isNewer = (/** @type {StageEvent} */ { k, fence }) => k === "counted" && fence > holder.fence;
    await stage.until(isNewer, PATIENCE_MS);
    await stage.until(isNewer, PATIENCE_MS);
    stage.emit({ k: "thaw", ...holder });
    const wrote = stage.until(({ k, fence }) => k === "wrote" && fence === holder.fence, PATIENCE_MS);
    record({ k: "resume", ...holder });
    await Promise.all([thaw(), wrote]);
  } finally {
    await thaw();
  }
}

/**
 * Freezing takes a few milliseconds: a worker that has started to write by then is thawed, and the next one is tried.
 * @param {Scene} scene
 */
async function freezeBeforeWrite(scene) {
  const { stage, crew, record } = scene;
  for (;;) {
    const holder = await someoneAtWork(scene);
    let late = false;
    const unlisten = stage.listen(({ k, fence }) => (late ||= k === "write" && fence === holder.fence));
    const t = Number(record({ k: "pause", ...holder })["t"]);
    const thaw = await crew.freeze(holder.target);
    await delay(50); // messages that it sent before it froze may still arrive
    unlisten();
    if (!late) return { holder, t, thaw };
    record({ k: "resume", ...holder });
    await thaw();
  }
}

/** @param {Scene} scene */
async function killLeader(scene) {
  const { etcd, stage, record } = scene;
  const leader = await /** @type {EtcdCluster} */ (etcd).leader();
  const { fence } = await someoneAtWork(scene);
  await leader.kill();
  const { t } = record({ k: "fault", fault: "kill-leader", target: leader.name });
  await recovery(scene, {
    fault: "kill-leader",
    t,
    target: leader.name,
    fence,
    fits: isWriteAfter(Number(t)),
  });
  await quiet(scene);
  await leader.restart();
  stage.emit(record({ k: "restart", target: leader.name }));
}

/**
 * @param {Scene} scene
 * @param {{ fault: FaultName, t: any, target: string, fence: number, fits: (event: StageEvent) => boolean }} what
 */
async function recovery({ stage }, { fits, ...what }) {
  stage.emit({ k: "fault", ...what });
  const next = await stage.until(fits, PATIENCE_MS);
  const ms = next && (next["t"] - what.t) / 1000;
  stage.emit({ k: "recovered", ...what, ms, by: next?.["p"], kept: next?.["fence"] === what.fence });
}

/** @param {{ fence: number }} holder */
const isHoldAfter =
  (holder) =>
  (/** @type {StageEvent} */ { k, fence }) =>
    k === "held" && fence > holder.fence;

/** @param {number} t */
const isWriteAfter =
  (t) =>
  (/** @type {StageEvent} */ { k, outcome, invoked }) =>
    k === "wrote" && outcome === "accepted" && invoked > t;
