// Judges a stress run: pure functions over (history, etcd's own events). Each returns one sentence per violation.
// I1 needs the timing axiom (no etcd that revokes early); all others hold under every fault.

import { noLostUpdate, noStaleWrite } from "./register-rules.js";
import { faultsOf, holdsOf, isAcquire, pausesOf } from "./holds.js";
import { placesOf } from "./places.js";
/** @import { Hold, Invariant, Place, Run, Step } from "./history.js" */

/** @type {Invariant} I1 */
export function claimsNeverOverlap(run) {
  const early = revokedEarly(run);
  const overlaps = overlapsOf(run.history).filter(({ first }) => !early.has(first.token));
  return overlaps.map(
    ({ first, second, ns }) => `${name(first)} and ${name(second)} both claimed to hold, for ${ms(ns)} ms`,
  );
}

/**
 * @param {readonly Step[]} history
 * @returns {{ first: Hold, second: Hold, ns: bigint }[]}
 */
export function overlapsOf(history) {
  const spans = holdsOf(history).flatMap((hold) => hold.spans.map((span) => ({ hold, ...span })));
  spans.sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0));
  /** @type {Map<string, (typeof spans)[number]>} per lock, the span that reaches furthest */
  const furthest = new Map();
  const found = [];
  for (const span of spans) {
    const before = furthest.get(span.hold.lock);
    if (before !== undefined && before.to > span.from && !same(before.hold, span.hold)) {
      const to = before.to < span.to ? before.to : span.to;
      found.push({ first: before.hold, second: span.hold, ns: to - span.from });
    }
    if (before === undefined || span.to > before.to) furthest.set(span.hold.lock, span);
  }
  return found;
}

/** @type {Invariant} I2 */
export function serverSawOneHolder(run) {
  const places = byToken(run);
  const holds = holdsOf(run.history);
  return [...holds.flatMap((hold) => neverAtHead(hold, places)), ...usedTooEarly(run, holds, places)];
}

/** @param {Hold} hold @param {Map<bigint, Place>} places */
function neverAtHead(hold, places) {
  const place = places.get(hold.token);
  if (place === undefined || place.lock !== hold.lock) return [`${name(hold)} has no place on the server`];
  if (place.headSince !== undefined || !hold.heldWhenGranted) return [];
  // Its place was gone before the grant: I9 judges that.
  if (place.deletedSeen !== undefined && place.deletedSeen < hold.granted) return [];
  return [`${name(hold)} was granted, yet an older place outlived it on the server`];
}

/**
 * A read or write that a holder sent after its grant was answered at a revision: by then it was the head.
 * @param {Run} run @param {readonly Hold[]} holds @param {Map<bigint, Place>} places
 */
function usedTooEarly(run, holds, places) {
  const granted = new Map(holds.map((hold) => [`${hold.p}#${hold.id}`, hold]));
  return run.history.flatMap((step) => {
    if (step.k !== "ok" || (step.f !== "read" && step.f !== "write") || step.rev === undefined) return [];
    const hold = granted.get(`${step.p}#${step.id}`);
    const since = hold && places.get(hold.token)?.headSince;
    if (hold === undefined || since === undefined || since <= step.rev) return [];
    return [`${name(hold)} held at revision ${step.rev}, but came to the head at ${since}`];
  });
}

/** @type {Invariant} I3 */
export function fencesRise(run) {
  const places = byToken(run);
  const seen = new Set();
  /** @type {Map<string, bigint>} per lock: the highest token granted so far */
  const highest = new Map();
  const floors = new Map();
  const bad = [];
  for (const step of run.history) {
    if (!("id" in step) || !isAcquire(step)) continue;
    const of = `${step.p}#${step.id}`;
    if (step.k === "invoke") floors.set(of, highest.get(step.lock) ?? 0n);
    if (step.k !== "ok" || step.token === undefined) continue;
    const { token, lock } = step;
    const text = `${of} on ${lock} got fence ${token}`;
    if (seen.has(token)) bad.push(`${text}, which was given before`);
    if (token <= floors.get(of))
      bad.push(`${text}, not above ${floors.get(of)}, granted before it was asked`);
    if (places.get(token)?.key !== step.key) bad.push(`${text}, not the create revision of ${step.key}`);
    seen.add(token);
    if (token > (highest.get(lock) ?? 0n)) highest.set(lock, token);
  }
  return bad;
}

/** @type {Invariant} I6 */
export function servedInOrder(run) {
  const places = byToken(run);
  const pauses = pausesOf(run.history);
  /** @type {Map<string, Hold>} per lock: the latest place granted so far */
  const latest = new Map();
  const bad = [];
  for (const hold of holdsOf(run.history)) {
    const before = latest.get(hold.lock);
    if (before === undefined || hold.token > before.token) latest.set(hold.lock, hold);
    else if (hold.heldWhenGranted && !stoppedWhileGranted(hold))
      bad.push(`${name(hold)} was granted after the younger place ${name(before)}`);
  }
  return bad;

  /** A process stopped between its turn and the line that records it records it late. @param {Hold} hold */
  function stoppedWhileGranted(hold) {
    const turn = places.get(hold.token)?.headSeen ?? hold.invoked;
    return (pauses.get(hold.p) ?? []).some(({ from, to }) => from <= hold.granted && to >= turn);
  }
}

/** @type {Invariant} I7 */
export function noLostWakeUp(run) {
  const { history } = run;
  const second = 1_000_000_000n;
  const ttl = BigInt(run.setting.ttlSeconds) * second;
  const faults = faultsOf(history);
  const granted = new Map(holdsOf(history).map((hold) => [hold.token, hold.granted]));
  const last = history.at(-1)?.t ?? 0n;
  const late = [...byToken(run).values()].flatMap((place) => {
    if (place.headSeen === undefined) return [];
    const end = granted.get(place.create) ?? place.deletedSeen ?? last;
    if (end <= allowed(place, place.headSeen, end)) return [];
    return [`${place.key}@${place.create} was the head for ${ms(end - place.headSeen)} ms and not granted`];
  });
  return [...late, ...pendingAcquires(history)];

  /**
   * One TTL; after a fault also an election, what dead leases have left, and the detection of a silent stream.
   * @param {Place} place @param {bigint} from @param {bigint} end
   */
  function allowed(place, from, end) {
    const settle = ttl + 4n * second;
    const owner = place.owner?.split("/")[0];
    const touching = faults.filter(
      (fault) =>
        fault.from <= end &&
        fault.to + settle >= from &&
        (!fault.fault.endsWith("worker") || owner === undefined || owner === fault.target),
    );
    return touching.reduce((max, { to }) => (to + settle > max ? to + settle : max), from) + ttl;
  }
}

/** @param {readonly Step[]} history */
function pendingAcquires(history) {
  const dead = new Set(faultsOf(history, ["kill-worker"]).map(({ target }) => target));
  /** @type {Map<string, string>} */
  const pending = new Map();
  for (const step of history) {
    if (!("id" in step) || !isAcquire(step) || dead.has(step.p)) continue;
    if (step.k === "invoke") pending.set(`${step.p}#${step.id}`, step.lock);
    else pending.delete(`${step.p}#${step.id}`);
  }
  return [...pending].map(([of, lock]) => `${of} still waits for ${lock} at the end`);
}

/** @type {Invariant} I8 */
export function nothingLeftBehind(run) {
  const reports = run.history.flatMap((step) => (step.k === "leftovers" ? [step] : []));
  const missing = ["idle", "end"].filter((when) => !reports.some((report) => report.when === when));
  return [
    ...missing.map((when) => `nobody looked for leftovers (${when})`),
    ...reports.flatMap(({ when, keys }) => keys.map((key) => `key ${key} was left (${when})`)),
    ...reports.flatMap(({ when, leases }) => leases.map((lease) => `lease ${lease} was left (${when})`)),
  ];
}

/** @type {Invariant} I9: the observer has a DELETE only after etcd did it, so a later claim is a false one */
export function noClaimAfterDeletion(run) {
  const places = byToken(run);
  const early = revokedEarly(run);
  return holdsOf(run.history).flatMap((hold) => {
    if (early.has(hold.token)) return [];
    const gone = places.get(hold.token)?.deletedSeen;
    if (gone === undefined) return [];
    const readings = [{ held: hold.heldWhenGranted, t: hold.granted }, ...hold.claims];
    const late = readings.findLast(({ held, t }) => held && t > gone);
    return late ? [`${name(hold)} claimed to hold ${ms(late.t - gone)} ms after etcd deleted its place`] : [];
  });
}

export const invariants = {
  ...{ I1: claimsNeverOverlap, I2: serverSawOneHolder, I3: fencesRise, I4: noStaleWrite, I5: noLostUpdate },
  ...{ I6: servedInOrder, I7: noLostWakeUp, I8: nothingLeftBehind, I9: noClaimAfterDeletion },
};

/**
 * @param {Run} run
 * @returns {Record<keyof typeof invariants, string[]>}
 */
export function judge(run) {
  const entries = Object.entries(invariants).map(([label, invariant]) => [label, invariant(run)]);
  return Object.fromEntries(entries);
}

/**
 * Places that went with their whole lease, where etcd is known to revoke early: the holder cannot know before it is
 * told. A place that went alone, while its lease lived on, is never excused.
 * @param {Run} run @returns {Set<bigint>}
 */
function revokedEarly(run) {
  const places = [...byToken(run).values()];
  /** @type {Map<string, bigint>} */
  const lastUse = new Map();
  for (const { lease, create, deleted } of places) {
    const use = deleted ?? FOREVER;
    for (const rev of [create, use]) if (rev > (lastUse.get(lease) ?? 0n)) lastUse.set(lease, rev);
  }
  const early = places.filter(
    ({ lease, deleted }) => run.setting.revokesEarly && deleted === lastUse.get(lease),
  );
  return new Set(early.map(({ create }) => create));
}
const FOREVER = 2n ** 62n;

/** @param {Run} run @returns {Map<bigint, Place>} */
function byToken(run) {
  const places = [...placesOf(run.server, run.setting).values()].flat();
  return new Map(places.map((place) => [place.create, place]));
}

/** @param {Hold} a @param {Hold} b */
const same = (a, b) => a.p === b.p && a.id === b.id;
/** @param {Hold} hold */
const name = (hold) => `${hold.p}#${hold.id} (${hold.lock}, fence ${hold.token})`;
/** @param {bigint} ns */
const ms = (ns) => (Number(ns) / 1e6).toFixed(1);
