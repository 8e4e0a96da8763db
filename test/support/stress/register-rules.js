import { placesOf } from "./places.js";
/** @import { Invariant, Outcome, Place, Run } from "./history.js" */

/** @type {Invariant} I4: what the register shows was written by the holder of that revision, and as it was told */
export function noStaleWrite(run) {
  const places = new Map([...placesOf(run.server, run.setting).values()].flat().map((p) => [p.create, p]));
  const outcomes = outcomesOf(run);
  const told = new Set();
  const bad = [];
  for (const [lock, written] of registersOf(run)) {
    let highest = 0n;
    for (const { rev, token, write } of written) {
      const place = places.get(token);
      const text = `write ${write} at revision ${rev} with fence ${token}`;
      if (token < highest) bad.push(`${text} came after fence ${highest}`);
      if (place?.lock !== lock || !heldAt(place, rev)) bad.push(`${text}: its place did not hold then`);
      if (told.has(write)) bad.push(`${text} was applied twice`);
      if (!outcomes.has(write)) bad.push(`${text} was never asked for`);
      if (outcomes.get(write)?.k === "fail") bad.push(`${text} was reported as refused`);
      told.add(write);
      if (token > highest) highest = token;
    }
  }
  for (const [write, outcome] of outcomes)
    if (outcome?.k === "ok" && !told.has(write)) bad.push(`write ${write} was reported done and never seen`);
  return bad;
}

/** @type {Invariant} I5: every holder read what the one before it wrote */
export function noLostUpdate(run) {
  const bad = [];
  for (const [lock, written] of registersOf(run)) {
    let last = 0;
    for (const { rev, seq, write } of written) {
      if (seq !== last + 1) bad.push(`${lock}: ${write} put ${seq} after ${last} at revision ${rev}`);
      last = seq;
    }
  }
  return bad;
}

/** @param {Place} place @param {bigint} rev */
function heldAt({ headSince, deleted }, rev) {
  if (headSince === undefined || headSince > rev) return false;
  return deleted === undefined || deleted > rev;
}

/** @param {Run} run @returns {Map<string, { rev: bigint, token: bigint, seq: number, write: string }[]>} */
function registersOf({ server, setting }) {
  const registers = new Map();
  for (const event of server) {
    if (!event.key.startsWith(setting.registers) || event.type !== "PUT") continue;
    const lock = event.key.slice(setting.registers.length);
    const { token, seq, write } = JSON.parse(event.value);
    const written = registers.get(lock) ?? [];
    written.push({ rev: event.rev, token: BigInt(token), seq, write });
    registers.set(lock, written);
  }
  return registers;
}

/** @param {Run} run @returns {Map<string, Outcome | undefined>} undefined: asked for, and never answered */
function outcomesOf({ history }) {
  /** @type {Map<string, Outcome | undefined>} */
  const outcomes = new Map();
  for (const step of history) {
    if (!("write" in step) || step.write === undefined) continue;
    outcomes.set(step.write, step.k === "invoke" ? undefined : step);
  }
  return outcomes;
}
