import { beliefOverlaps } from "./claims.js";
import { nameOf, type Facts, type Finding } from "./facts.js";
import { FOREVER, later, type Span } from "./spans.js";

/** How often something was excused, for how long in total, and for how long at most. */
interface Excused {
  readonly count: number;
  readonly ms: number;
  readonly longestMs: number;
}
/** The time between a waiter's turn and its grant. */
interface WakeUp {
  readonly ms: number;
  readonly who: string;
}
type Counts = Readonly<Record<string, number>>;

/** What happened in a run, and how far its promises were stretched. */
export class Figures {
  /** The total time in which a holder had not been notified of its end while another one held. */
  readonly overlapMs: number;
  /** Grants after a wait for another holder's place. */
  readonly handOvers: number;
  readonly longestWakeUp: WakeUp | undefined;
  /** Revisions at which several calls put or deleted their places, which means that they shared a request. */
  readonly batches: { readonly count: number; readonly largest: number };
  /** Among those that no fault touched. */
  readonly longestQuietWakeUp: WakeUp | undefined;
  /** By operation and result: "acquire ok", "claim" and so on. */
  readonly operations: Counts;
  /** Injected, by kind. */
  readonly faults: Counts;
  /** By invariant and cause. */
  readonly excused: Readonly<Record<string, Excused>>;

  constructor(facts: Facts, found: readonly (readonly [label: string, Finding])[]) {
    this.overlapMs = toMs(beliefOverlaps(facts).reduce((sum, { from, to }) => sum + to - from, 0n));
    this.handOvers = handOversOf(facts);
    this.batches = batchesOf(facts);
    this.longestWakeUp = longestWakeUp(facts, () => true);
    const { troubles } = facts;
    this.longestQuietWakeUp = longestWakeUp(facts, (p, wake) => !troubles.disturbed(p, wake));
    this.operations = operationsOf(facts);
    this.faults = countsOf(troubles.faults.map(({ fault }) => fault));
    this.excused = excusedOf(found);
  }

  get faultCount(): number {
    return Object.values(this.faults).reduce((sum, count) => sum + count, 0);
  }

  get faultKinds(): number {
    return Object.keys(this.faults).length;
  }

  /** A summary for humans. */
  lines(): string[] {
    const excused = Object.entries(this.excused).map(
      ([what, { count, ms, longestMs }]) =>
        `excused, ${what}: ${count} times, ${ms.toFixed(1)} ms in all, ${longestMs.toFixed(1)} ms at most`,
    );
    return [
      `operations: ${listOf(this.operations)}`,
      `${this.faultCount} faults of ${this.faultKinds} kinds: ${listOf(this.faults)}`,
      `${this.handOvers} hand-overs; longest wake-up ${wakeUp(this.longestWakeUp)}`,
      `longest wake-up that no fault touched ${wakeUp(this.longestQuietWakeUp)}`,
      `${this.batches.count} revisions of several places at once, ${this.batches.largest} at most`,
      `claims overlapped for ${this.overlapMs.toFixed(1)} ms`,
      ...excused,
    ];
  }
}

const toMs = (ns: bigint) => Number(ns) / 1e6;
const wakeUp = (it: WakeUp | undefined) => (it === undefined ? "none" : `${it.ms.toFixed(1)} ms, ${it.who}`);
const listOf = (counts: Counts) =>
  Object.entries(counts)
    .map(([what, count]) => `${what} ${count}`)
    .join(", ");

function handOversOf({ places, holdOf }: Facts): number {
  let count = 0;
  for (const queue of places.values()) {
    /** When the last of the older holders' places was deleted. */
    let gone = 0n;
    for (const place of queue) {
      const { create, deleted = FOREVER } = place;
      if (!holdOf.has(place)) continue;
      if (gone > create) count++;
      gone = later(gone, deleted);
    }
  }
  return count;
}

/** A lease that ends deletes all its places at one revision: that is not a batch. */
function batchesOf({ places }: Facts): Figures["batches"] {
  const changes = new Map<bigint, string[]>();
  const add = (rev: bigint, what: string) => changes.set(rev, [...(changes.get(rev) ?? []), what]);
  for (const { key, create, deleted, lease } of [...places.values()].flat()) {
    add(create, `put ${key}`);
    if (deleted !== undefined) add(deleted, `end ${lease}`);
  }
  const sizes = [...changes.values()].map((whats) => new Set(whats).size).filter((size) => size > 1);
  return { count: sizes.length, largest: sizes.reduce((most, size) => Math.max(most, size), 0) };
}

function longestWakeUp(
  { holds, placeOf }: Facts,
  counts: (p: string, wake: Span) => boolean,
): WakeUp | undefined {
  let longest: WakeUp | undefined;
  for (const hold of holds) {
    const place = placeOf.get(hold);
    const turn = place?.headSince === place?.create ? undefined : place?.headSeen;
    if (turn === undefined || !counts(hold.p, { from: turn, to: hold.granted })) continue;
    // The observer may see the turn later than the process that was granted.
    const ms = Math.max(0, toMs(hold.granted - turn));
    if (longest === undefined || ms > longest.ms) longest = { ms, who: nameOf(hold) };
  }
  return longest;
}

function operationsOf({ history, server }: Facts): Counts {
  const what = history.flatMap((step) => {
    if (step.k === "nemesis") return [];
    return ["f" in step ? `${step.f} ${step.k}` : step.k === "end" ? `end ${step.reason}` : step.k];
  });
  return { revisions: new Set(server.map(({ rev }) => rev)).size, ...countsOf(what) };
}

function countsOf(names: readonly string[]): Counts {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return Object.fromEntries(counts);
}

function excusedOf(found: readonly (readonly [label: string, Finding])[]): Record<string, Excused> {
  const excused: Record<string, Excused> = {};
  for (const [label, { excuse, ns = 0n }] of found) {
    if (excuse === undefined) continue;
    const what = `${label} ${excuse}`;
    const { count, ms, longestMs } = excused[what] ?? { count: 0, ms: 0, longestMs: 0 };
    const longer = Math.max(longestMs, toMs(ns));
    excused[what] = { count: count + 1, ms: ms + toMs(ns), longestMs: longer };
  }
  return excused;
}
