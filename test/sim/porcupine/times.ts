import type { Facts } from "../../lab/checker/facts.js";
import type { Place } from "../../lab/checker/places.js";
import { countUntil, later, order } from "../../lab/checker/spans.js";
import type { Outcome, Step } from "../../lab/runner/history.js";

/** exactly: the server events have the time of their change. when seen: an observer received them some time later. */
export type Dated = "exactly" | "when seen";

export interface Times {
  /** Nanoseconds since the start of the run. */
  readonly at: (t: bigint) => number;
  /** When etcd deleted the place of a hold; undefined if it did not. */
  readonly deletion: (place: Place) => Span | undefined;
  /** When etcd put the key of a writer as that of a reader; undefined if it did not. */
  readonly downgrade: (place: Place) => Span | undefined;
  /** When etcd had this revision, which the observer saw then. */
  readonly revision: (revision: bigint, seen: bigint) => Span;
}

interface Span {
  readonly from: number;
  readonly to: number;
}

/** etcd had this revision, or a lower one, at `t` or later. */
interface Known {
  readonly rev: bigint;
  readonly t: bigint;
}

export function timesOf(facts: Facts, dated: Dated): Times {
  const at = (t: bigint): number => Number(t - facts.start);
  const known = dated === "exactly" ? [] : knownOf(facts);
  const spanOf = (revision: bigint, changeSeen: bigint, seen: bigint): Span => {
    if (dated === "exactly") return { from: at(changeSeen), to: at(changeSeen) };
    const last = known[countUntil(known, revision - 1n, ({ rev }) => rev) - 1];
    const from = last === undefined || last.t > changeSeen ? seen : last.t;
    return { from: at(from), to: at(changeSeen) };
  };
  const change = (revision: bigint | undefined, changeSeen: bigint | undefined, seen: bigint) =>
    revision === undefined || changeSeen === undefined ? undefined : spanOf(revision, changeSeen, seen);
  return {
    at,
    deletion: ({ deleted, deletedSeen, seen }) => change(deleted, deletedSeen, seen),
    downgrade: ({ downgraded, announcedSeen, seen }) => change(downgraded, announcedSeen, seen),
    revision: (revision, seen) => spanOf(revision, seen, facts.start),
  };
}

/** What calls show about the time of a revision: it came after the call that created it, or that was answered with it. */
function knownOf({ holds, history }: Facts): Known[] {
  const known: Known[] = holds.map(({ create, invoked }) => ({ rev: create, t: invoked }));
  for (const { step, invoked } of registerCalls(history))
    if (step.rev !== undefined) known.push({ rev: step.rev, t: invoked });
  let t = 0n;
  return known
    .sort((a, b) => order(a.rev, b.rev))
    .map((each) => ({ rev: each.rev, t: (t = later(t, each.t)) }));
}

/** A read or a write of a register, and when it was invoked at the earliest. */
export interface RegisterCall {
  readonly step: Outcome;
  readonly invoked: bigint;
}

/** The invocation of a read is not recorded: it followed the previous step of the same hold. */
export function registerCalls(history: readonly Step[]): RegisterCall[] {
  const last = new Map<string, bigint>();
  const calls: RegisterCall[] = [];
  for (const step of history) {
    // A loss and an abort are recorded at any time, even while a read is under way.
    if (!("id" in step) || step.k === "end" || step.k === "abort") continue;
    if (step.k === "asks" || step.k === "wanted") continue;
    if (step.k === "run" || step.k === "ran" || step.k === "moved") continue;
    if (step.k === "asked" || step.k === "answered" || step.k === "worked" || step.k === "settled-work")
      continue;
    if (step.k === "called" || step.k === "returned" || step.k === "gave-up") continue;
    const of = `${step.p}#${step.id}`;
    const invoked = last.get(of);
    if (step.k !== "invoke" && step.k !== "claim" && (step.f === "read" || step.f === "write"))
      calls.push({ step, invoked: invoked ?? step.t });
    last.set(of, step.t);
  }
  return calls;
}
