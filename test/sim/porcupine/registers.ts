import type { Invoke, Outcome, Step } from "../../lab/runner/history.js";
import type { Source } from "./export.js";
import type { Operation } from "./operation.js";
import { registerCalls } from "./times.js";

/** The reads and writes of each register that was written, and the ends of its fences. */
export function registerOperations(source: Source): Operation[] {
  const writes = writesOf(source);
  const written = new Set(writes.map(({ name }) => name));
  return [...writes, ...[...readsOf(source), ...endsOf(source)].filter(({ name }) => written.has(name))];
}

function readsOf({ facts, times: { at } }: Source): Operation[] {
  return registerCalls(facts.history).flatMap(({ step, invoked }) => {
    if (step.f !== "read" || step.k !== "ok") return [];
    const { p: client, lock: name, seq: value = 0, t } = step;
    return [{ object: "register", name, op: "read", client, from: at(invoked), to: at(t), value }];
  });
}

/** A shared hold has no fence. */
function endsOf({ grants }: Source): Operation[] {
  return grants.flatMap(({ hold: { lock: name, token, shared }, deleted }) => {
    if (shared || deleted === undefined) return [];
    return [{ object: "register", name, op: "end", client: "etcd", fence: Number(token), ...deleted }];
  });
}

function writesOf({ facts, times: { at } }: Source): Operation[] {
  const fences = new Map(facts.holds.map((hold) => [idOf(hold), Number(hold.token)]));
  return writesIn(facts.history).map(({ invoke, value, outcome }) => {
    const { p: client, lock: name, t } = invoke;
    const fence = fences.get(idOf(invoke)) ?? 0;
    const of = { object: "register", name, op: "write", client, fence, from: at(t), value } as const;
    if (outcome === undefined || outcome.k === "info") return of;
    return { ...of, to: at(outcome.t), accepted: outcome.k === "ok" };
  });
}

interface Write {
  readonly invoke: Invoke;
  /** A write follows a read and adds one. */
  readonly value: number;
  outcome: Outcome | undefined;
}

function writesIn(history: readonly Step[]): Write[] {
  const read = new Map<string, number>();
  const writes = new Map<string, Write>();
  for (const step of history) {
    if (!("f" in step)) continue;
    if (step.f === "read" && step.k === "ok") read.set(idOf(step), step.seq ?? 0);
    if (step.f !== "write" || step.write === undefined) continue;
    if (step.k === "invoke")
      writes.set(step.write, { invoke: step, value: (read.get(idOf(step)) ?? 0) + 1, outcome: undefined });
    else writes.get(step.write)!.outcome = step;
  }
  return [...writes.values()];
}

const idOf = ({ p, id }: { readonly p: string; readonly id: number }): string => `${p}#${id}`;
