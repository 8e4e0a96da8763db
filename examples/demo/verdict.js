// @ts-check
// The verdict: pure functions that decide from the recorded history and etcd's own changes which promises were kept.
import { claimsOf, overlapsOf } from "./claims.js";
import { replay } from "./store.js";
import { recoveriesOf } from "./recovery.js";

/** @typedef {import("./history.js").History} History */
/** @typedef {import("./history.js").Entry} Entry */
/**
 * @typedef {object} Check
 * @property {string} promise
 * @property {boolean} kept
 * @property {string} finding one line: what was counted
 * @property {string[]} broken one line for each violation
 */
/** @typedef {{ entries: readonly Entry[], store: import("./store.js").Replay, run: History["run"] }} Evidence */

/**
 * @param {History} history
 * @returns {{ kept: boolean, checks: Check[] }}
 */
export function judge({ run, entries, changes, complete }) {
  const evidence = { entries, run, store: replay(changes, run) };
  const checks = [oneHolder, inOrder, fencesRise, staleRefused, noneLost, recovered, nothingLeft].map(
    (check) => check(evidence),
  );
  if (!complete) checks.push(verdictOf("etcd's history is complete", "", ["the observer missed the end"]));
  return { kept: checks.every(({ kept }) => kept), checks };
}

/**
 * @param {string} promise
 * @param {string} finding
 * @param {string[]} broken
 * @returns {Check}
 */
const verdictOf = (promise, finding, broken) => ({ promise, finding, broken, kept: broken.length === 0 });

/**
 * @param {readonly Entry[]} entries
 * @param {string} k
 */
const ofKind = (entries, k) => entries.filter((entry) => entry.k === k);

/** @param {Evidence} evidence */
function oneHolder({ entries }) {
  const overlaps = overlapsOf(claimsOf(entries));
  const broken = overlaps.map(([one, other]) => {
    const ms = Math.max(1, Math.round((Math.min(one.to, other.to) - other.from) / 1000));
    return `${one.p} (fence ${one.fence}) and ${other.p} (fence ${other.fence}) both claimed it for ${ms} ms`;
  });
  const holds = ofKind(entries, "held").length;
  if (holds === 0) broken.push("nobody ever held the lock");
  return verdictOf(
    "one holder at a time",
    `${holds} holds, ${overlaps.length} overlaps (a frozen holder counts until it froze)`,
    broken,
  );
}

/** The holders, by time, must be the places of the queue, by create revision. @param {Evidence} evidence */
function inOrder({ entries, store }) {
  const holds = ofKind(entries, "held");
  const broken = neighbours(holds)
    .filter(([one, next]) => fenceOf(next) < fenceOf(one))
    .map(
      ([one, next]) => `${next.p} (place ${fenceOf(next)}) was served after ${one.p} (place ${fenceOf(one)})`,
    );
  const unknown = holds
    .filter((hold) => store.created.get(`${hold["key"]}@${fenceOf(hold)}`) === undefined)
    .map((hold) => `${hold.p} held ${hold["key"]} with fence ${fenceOf(hold)}, which etcd never had`);
  return verdictOf("served in order", "holders by time = places by create revision", [...broken, ...unknown]);
}

/** @param {Evidence} evidence */
function fencesRise({ entries, store }) {
  const fences = ofKind(entries, "held").map(fenceOf);
  const broken = neighbours(fences)
    .filter(([one, next]) => next <= one)
    .map(([one, next]) => `fence ${next} came after ${one}`);
  const fell = neighbours(store.writes)
    .filter(([one, next]) => next.fence < one.fence)
    .map(([one, next]) => `the counter took a write of fence ${next.fence} after one of fence ${one.fence}`);
  return verdictOf("fences rise", `from ${fences[0]} to ${fences.at(-1)}, also in the counter`, [
    ...broken,
    ...fell,
  ]);
}

/** @param {Evidence} evidence */
function staleRefused({ entries, store, run }) {
  const stale = store.writes.filter((write) => write.holder !== write.fence);
  const broken = stale.map(
    ({ by, n, fence, holder }) =>
      `${by} wrote ${n} with fence ${fence} while ${holder === undefined ? "nobody held" : `fence ${holder} held`}`,
  );
  const applied = new Set(store.writes.map((write) => write.op));
  const isApplied = (/** @type {Entry} */ entry) => applied.has(String(entry["op"]));
  const refused = ofKind(entries, "wrote").filter(({ outcome }) => outcome === "refused");
  for (const { p, op } of refused.filter(isApplied)) {
    broken.push(`${p} was told that ${op} is refused, but etcd applied it`);
  }
  const late = ofKind(entries, "wrote").filter((entry) => entry["outcome"] === "refused late");
  const count = refused.length + late.filter((entry) => !isApplied(entry)).length;
  const shown = count + stale.length > 0 || !run.faults.includes("pause-holder");
  if (!shown) broken.push("no stale write was seen: the frozen holder never tried to write");
  return verdictOf("stale writes refused", `${count} refused, ${stale.length} accepted`, broken);
}

/** @param {Evidence} evidence */
function noneLost({ entries, store }) {
  const writes = store.writes.filter((write, index) => write.op !== store.writes[index - 1]?.op);
  const broken = writes
    .map((write, index) => ({ write, before: writes[index - 1]?.n ?? 0 }))
    .filter(({ write, before }) => write.n !== before + 1)
    .map(({ write, before }) => `${write.by} set the counter from ${before} to ${write.n}`);
  const applied = new Set(writes.map((write) => write.op));
  const accepted = ofKind(entries, "wrote").filter((entry) => entry["outcome"] === "accepted");
  for (const { p, op } of accepted.filter((entry) => !applied.has(String(entry["op"])))) {
    broken.push(`${p} was told that ${op} is written, but etcd never had it`);
  }
  const last = writes.at(-1)?.n ?? 0;
  return verdictOf("no update lost", `${writes.length} writes, the counter stands at ${last}`, broken);
}

/** @param {Evidence} evidence */
function recovered({ entries, run }) {
  const recoveries = recoveriesOf(entries, run.ttlMs);
  const finding = recoveries.map(({ fault, ms }) => `${fault} ${seconds(ms)}`).join(" · ");
  const broken = recoveries
    .filter(({ ms, limitMs }) => ms === undefined || ms > limitMs)
    .map(({ fault, ms, limitMs }) => `${fault}: ${seconds(ms)}, the limit is ${seconds(limitMs)}`);
  const missing = run.faults.filter((fault) => !entries.some((entry) => entry["fault"] === fault));
  broken.push(...missing.map((fault) => `${fault} was planned but never injected`));
  return verdictOf("recovered in time", finding, broken);
}

/** @param {Evidence} evidence */
function nothingLeft({ entries, store, run }) {
  const killed = new Set(ofKind(entries, "kill").map((entry) => entry["target"]));
  const ended = new Set(ofKind(entries, "closed").map((entry) => entry.p));
  const broken = store.left.map((key) => `${key} is still in the queue`);
  for (const name of run.workers.filter((worker) => !killed.has(worker) && !ended.has(worker))) {
    broken.push(`${name} did not come to its end`);
  }
  return verdictOf(
    "nothing left behind",
    `queue empty, ${ended.size} workers closed, ${killed.size} killed`,
    broken,
  );
}

/** @param {Entry} entry */
const fenceOf = (entry) => Number(entry["fence"]);

/** @param {number | undefined} ms */
const seconds = (ms) => (ms === undefined ? "never" : `${(ms / 1000).toFixed(1)} s`);

/**
 * @template T
 * @param {readonly T[]} items
 * @returns {[T, T][]}
 */
function neighbours(items) {
  return items.slice(1).map((item, index) => [/** @type {T} */ (items[index]), item]);
}
