import type { Outcome } from "../runner/history.js";
import { at, type Facts, type Finding, type Rule } from "./facts.js";

interface Written {
  readonly rev: bigint;
  readonly seen: bigint;
  readonly token: bigint;
  readonly seq: number;
  readonly write: string;
}

/**
 * I4: what the register shows was written by the holder of that revision, once, and with the outcome that was reported.
 */
export const noStaleWrite: Rule = (facts) => {
  const outcomes = outcomesOf(facts);
  const applied = new Set<string>();
  const found: Finding[] = [];
  for (const [lock, written] of registersOf(facts)) {
    let highest = 0n;
    for (const entry of written) {
      const { rev, seen, token, write } = entry;
      const wrong = [
        ...(token < highest ? [`came after fence ${highest}`] : []),
        ...(mayWrite(facts, { lock, ...entry }) ? [] : ["its place did not hold then"]),
        ...(applied.has(write) ? ["was applied twice"] : []),
        ...(outcomes.has(write) ? [] : ["was never asked for"]),
        ...(outcomes.get(write)?.k === "fail" ? ["was reported as refused"] : []),
      ];
      for (const why of wrong)
        found.push({
          text: `${lock}: write ${write} at revision ${rev} (${at(facts, seen)}) with fence ${token}: ${why}`,
        });
      applied.add(write);
      if (token > highest) highest = token;
    }
  }
  for (const [write, outcome] of outcomes)
    if (outcome?.k === "ok" && !applied.has(write))
      found.push({ text: `write ${write} was reported done ${at(facts, outcome.t)} and never seen` });
  return found;
};

/** I5: every holder read what the previous holder wrote. */
export const noLostUpdate: Rule = (facts) => {
  const found: Finding[] = [];
  for (const [lock, written] of registersOf(facts)) {
    let last = 0;
    for (const { rev, seq, write, seen } of written) {
      if (seq !== last + 1)
        found.push({
          text: `${lock}: ${write} put ${seq} after ${last} at revision ${rev} (${at(facts, seen)})`,
        });
      last = seq;
    }
  }
  return found;
};

function mayWrite({ placeOf, early }: Facts, written: Written & { readonly lock: string }): boolean {
  const { lock, token, rev, seen } = written;
  const place = placeOf.get({ lock, create: token });
  if (place === undefined || (place.deleted !== undefined && place.deleted <= rev)) return false;
  if (place.headSince !== undefined && place.headSince <= rev) return true;
  // Another name of the same call has lost its key before the common turn: the call may be granted until it knows.
  const taken = early.get(place);
  return taken !== undefined && seen <= taken.until;
}

const known = new WeakMap<Facts, ReadonlyMap<string, readonly Written[]>>();

/** Per lock, what was written; two rules need it. */
function registersOf(facts: Facts): ReadonlyMap<string, readonly Written[]> {
  let registers = known.get(facts);
  if (registers === undefined) known.set(facts, (registers = readRegisters(facts)));
  return registers;
}

function readRegisters({ server, setting }: Facts): Map<string, Written[]> {
  const registers = new Map<string, Written[]>();
  for (const event of server) {
    if (!event.key.startsWith(setting.registers) || event.type !== "PUT") continue;
    const lock = event.key.slice(setting.registers.length);
    const { token, seq, write } = JSON.parse(event.value) as { token: string; seq: number; write: string };
    const written = registers.get(lock) ?? [];
    written.push({ rev: event.rev, seen: event.tSeen, token: BigInt(token), seq, write });
    registers.set(lock, written);
  }
  return registers;
}

/** undefined: invoked, and never answered. */
function outcomesOf({ steps }: Facts): Map<string, Outcome | undefined> {
  const outcomes = new Map<string, Outcome | undefined>();
  for (const step of steps.operations) {
    if (step.write === undefined) continue;
    outcomes.set(step.write, step.k === "invoke" ? undefined : step);
  }
  return outcomes;
}
