import type { Attributes } from "@opentelemetry/api";
import type { AcquireOutcome, HoldEndReason, LockKind, LockMessage } from "../diagnostics/messages.js";
import { ATTRIBUTES } from "./attributes.js";
import type { Instruments } from "./metrics.js";

/** Stands for every lock and election without a label, and for the labels beyond the limit. */
export const OTHER = "other";

/** Limits how many values the attribute `leasehold.label` has: a monitoring system keeps one time series for each. */
export class Labels {
  readonly #seen = new Set<string>();

  constructor(private readonly most: number) {}

  of(label: string | undefined): string {
    if (label === undefined || this.#seen.has(label)) return label ?? OTHER;
    if (this.#seen.size >= this.most) return OTHER;
    this.#seen.add(label);
    return label;
  }
}

type Counters = Pick<Instruments, "waiters" | "holdsActive">;

/** The counts and attributes of the locks of one kind and label. Each object of attributes is created once. */
export class Series {
  /** Changes since the last report. */
  #waiters = 0;
  #holds = 0;
  #reported = false;
  readonly #attributes: Attributes;
  readonly #outcomes = new Map<AcquireOutcome, Attributes>();
  readonly #ends = new Map<HoldEndReason, Attributes>();

  constructor(
    { kind, label }: { readonly kind: LockKind; readonly label: string },
    private readonly changed: Set<Series>,
  ) {
    this.#attributes = Object.freeze({ [ATTRIBUTES.kind]: kind, [ATTRIBUTES.label]: label });
  }

  /** Calls under way that wait: one more, or one less. */
  addWaiters(by: number): void {
    this.#waiters += by;
    this.changed.add(this);
  }

  /** Locks that are held: one more, or one less. */
  addHolds(by: number): void {
    this.#holds += by;
    this.changed.add(this);
  }

  /** The first report includes a change of 0, because a monitoring system sees no increase in the first value of a series. */
  report({ waiters, holdsActive }: Counters): void {
    if (this.#waiters !== 0 || !this.#reported) waiters.add(this.#waiters, this.#attributes);
    if (this.#holds !== 0 || !this.#reported) holdsActive.add(this.#holds, this.#attributes);
    this.#waiters = this.#holds = 0;
    this.#reported = true;
  }

  /** The attributes of a call that ended so. */
  outcome(outcome: AcquireOutcome): Attributes {
    const attributes = () => Object.freeze({ ...this.#attributes, [ATTRIBUTES.outcome]: outcome });
    return remembered(this.#outcomes, outcome, attributes);
  }

  /** The attributes of a hold that ended so. */
  ended(why: HoldEndReason): Attributes {
    const attributes = () => Object.freeze({ ...this.#attributes, [ATTRIBUTES.why]: why });
    return remembered(this.#ends, why, attributes);
  }
}

/** Every series since `instrument`: `Labels` limits their number. */
export class SeriesTable {
  readonly #byLabel = new Map<string, Map<LockKind, Series>>();
  readonly #changed = new Set<Series>();

  constructor(private readonly labels: Labels) {}

  of({ kind, label }: LockMessage): Series {
    const limited = this.labels.of(label);
    const byKind = remembered(this.#byLabel, limited, () => new Map<LockKind, Series>());
    return remembered(byKind, kind, () => new Series({ kind, label: limited }, this.#changed));
  }

  /** Adds the changes since the last call to the counters. */
  report(counters: Counters): void {
    for (const series of this.#changed) series.report(counters);
    this.#changed.clear();
  }
}

function remembered<K, V>(map: Map<K, V>, key: K, create: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const created = create();
  map.set(key, created);
  return created;
}
