import type { Attributes } from "@opentelemetry/api";
import type { AcquireOutcome, HoldEndReason, LockKind, LockMessage } from "../diagnostics/messages.js";
import { ATTRIBUTES } from "./attributes.js";

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

/** What metrics say of the locks of one kind and label. Attributes are objects that are created once. */
export class Series {
  /** Calls under way that wait. */
  waiters = 0;
  /** Locks that are held. */
  holds = 0;
  readonly attributes: Attributes;
  readonly #outcomes = new Map<AcquireOutcome, Attributes>();
  readonly #ends = new Map<HoldEndReason, Attributes>();

  constructor(kind: LockKind, label: string) {
    this.attributes = { [ATTRIBUTES.kind]: kind, [ATTRIBUTES.label]: label };
  }

  /** The attributes of a call that ended so. */
  outcome(outcome: AcquireOutcome): Attributes {
    return remembered(this.#outcomes, outcome, () => ({ ...this.attributes, [ATTRIBUTES.outcome]: outcome }));
  }

  /** The attributes of a hold that ended so. */
  ended(why: HoldEndReason): Attributes {
    return remembered(this.#ends, why, () => ({ ...this.attributes, [ATTRIBUTES.why]: why }));
  }
}

/** Every series since `instrument`: `Labels` limits their number. */
export class SeriesTable {
  readonly #byLabel = new Map<string, Map<LockKind, Series>>();

  constructor(private readonly labels: Labels) {}

  of({ kind, label }: LockMessage): Series {
    const limited = this.labels.of(label);
    const byKind = remembered(this.#byLabel, limited, () => new Map<LockKind, Series>());
    return remembered(byKind, kind, () => new Series(kind, limited));
  }

  all(): readonly Series[] {
    return [...this.#byLabel.values()].flatMap((byKind) => [...byKind.values()]);
  }
}

function remembered<K, V>(map: Map<K, V>, key: K, create: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const created = create();
  map.set(key, created);
  return created;
}
