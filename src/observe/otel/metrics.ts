import type {
  Attributes,
  Counter,
  Exception,
  Histogram,
  Meter,
  MetricOptions,
  ObservableGauge,
  UpDownCounter,
} from "@opentelemetry/api";
import type { AcquireOutcome, HoldEndReason, LockKind, LockMessage } from "../../base/telemetry/messages.js";
import { printable } from "../../base/util/printable.js";
import { isError } from "../../base/util/realm.js";

/** Names of attributes, of spans and of metrics. */
export const ATTRIBUTES = {
  kind: "leasehold.kind",
  label: "leasehold.label",
  name: "leasehold.name",
  names: "leasehold.names",
  tries: "leasehold.tries",
  outcome: "leasehold.outcome",
  ahead: "leasehold.ahead",
  waitedMs: "leasehold.waited_ms",
  fence: "leasehold.fence",
  owner: "leasehold.owner",
  reason: "leasehold.reason",
  heldMs: "leasehold.held_ms",
  warnHoldMs: "leasehold.warn_hold_ms",
  memberState: "leasehold.member.state",
} as const;

const MAX_OWNER = 100;
const MAX_CLASS = 100;
const MAX_MESSAGE = 500;

/** What the spans of a lock say from their start. Only with `names` do they have its name, which may contain data of users. */
export function lockAttributes(message: LockMessage, names: boolean): Attributes {
  const attributes: Attributes = { [ATTRIBUTES.kind]: message.kind };
  if (message.label !== undefined) attributes[ATTRIBUTES.label] = message.label;
  if (!names) return attributes;
  attributes[ATTRIBUTES.name] = printable(message.name);
  if (message.names.length > 1) attributes[ATTRIBUTES.names] = message.names.map((name) => printable(name));
  return attributes;
}

/** The owner of most locks of a process is the same. */
const printableOwner = ((): ((owner: string) => string) => {
  let last = "";
  let shown = "";
  return (owner) => {
    if (owner !== last) shown = printable((last = owner), MAX_OWNER);
    return shown;
  };
})();

/** Who holds, or wanted to. A fence can exceed what a number represents exactly, so it is a string. */
export function holderAttributes(owner: string | undefined, fence: bigint | undefined): Attributes {
  const attributes: Attributes = {};
  if (owner !== undefined) attributes[ATTRIBUTES.owner] = printableOwner(owner);
  if (fence !== undefined) attributes[ATTRIBUTES.fence] = String(fence);
  return attributes;
}

/**
 * What a span records of an error: its class and its code. Messages of errors contain names of locks, so they are recorded only
 * with `names`.
 */
export function exceptionOf(error: unknown, names: boolean): Exception & { readonly name: string } {
  if (!isError(error)) return { name: typeof error };
  const code = "code" in error && typeof error.code === "string" ? { code: error.code } : {};
  const message = names ? { message: printable(error.message, MAX_MESSAGE) } : {};
  return { name: printable(error.name, MAX_CLASS), ...code, ...message };
}

/** Stands for every lock and election without a label, and for the labels beyond the limit. */
const OTHER = "other";

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
  ended(reason: HoldEndReason): Attributes {
    const attributes = () => Object.freeze({ ...this.#attributes, [ATTRIBUTES.reason]: reason });
    return remembered(this.#ends, reason, attributes);
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

/** Seconds. A lock on an idle etcd takes one to ten milliseconds; a wait can take as long as the work of others. */
const WAITS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const HOLDS = [...WAITS, 900, 3600];
/** A renewal that takes longer than a TTL is never accepted, and few sessions have a TTL above a minute. */
const RENEWALS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

interface Metric extends MetricOptions {
  readonly name: string;
}

/** All metrics. The units are those of UCUM, as in OpenTelemetry's semantic conventions. */
export const METRICS = {
  acquireDuration: {
    name: "leasehold.acquire.duration",
    unit: "s",
    description: "Time from the call that takes a lock to its end.",
    advice: { explicitBucketBoundaries: WAITS },
  },
  waiters: {
    name: "leasehold.waiters",
    unit: "{call}",
    description: "Calls under way that wait for a lock.",
  },
  holdDuration: {
    name: "leasehold.hold.duration",
    unit: "s",
    description: "Time from the grant of a lock to its release or loss.",
    advice: { explicitBucketBoundaries: HOLDS },
  },
  holdsActive: { name: "leasehold.holds.active", unit: "{hold}", description: "Locks that are held." },
  holdsLost: {
    name: "leasehold.holds.lost",
    unit: "{hold}",
    description: "Locks that ended otherwise than by their release.",
  },
  sessionRemaining: {
    name: "leasehold.session.remaining",
    unit: "s",
    description: "Time until the deadline of the session that has the smallest part of its TTL left.",
  },
  sessionTtl: {
    name: "leasehold.session.ttl",
    unit: "s",
    description: "TTL of the session of leasehold.session.remaining.",
  },
  renewalDuration: {
    name: "leasehold.session.renewal.duration",
    unit: "s",
    description: "Time from the send of a renewal to the answer that accepts it.",
    advice: { explicitBucketBoundaries: RENEWALS },
  },
  leader: {
    name: "leasehold.leader",
    unit: "{leader}",
    description: "1 while this process leads an election with this label, otherwise 0.",
  },
  shardsOwned: {
    name: "leasehold.shards.owned",
    unit: "{shard}",
    description: "Shards that this process owns, of the groups with this label.",
  },
  shardMoves: {
    name: "leasehold.shards.moves",
    unit: "{shard}",
    description: "Shards that this process owns no longer.",
  },
  drainDuration: {
    name: "leasehold.shards.drain.duration",
    unit: "s",
    description: "Time from the signal that a shard moves until its work has settled.",
    advice: { explicitBucketBoundaries: WAITS },
  },
  failovers: {
    name: "leasehold.failovers",
    unit: "{failover}",
    description: "How often the cluster went from one member of etcd to another one.",
  },
} satisfies Readonly<Record<string, Metric>>;

export interface Instruments {
  readonly acquireDuration: Histogram;
  readonly waiters: UpDownCounter;
  readonly holdDuration: Histogram;
  readonly holdsActive: UpDownCounter;
  readonly holdsLost: Counter;
  readonly sessionRemaining: ObservableGauge;
  readonly sessionTtl: ObservableGauge;
  readonly renewalDuration: Histogram;
  readonly leader: ObservableGauge;
  readonly shardsOwned: ObservableGauge;
  readonly shardMoves: Counter;
  readonly drainDuration: Histogram;
  readonly failovers: Counter;
}

export function instrumentsOf(meter: Meter): Instruments {
  const histogram = (metric: Metric) => meter.createHistogram(metric.name, metric);
  const upDownCounter = (metric: Metric) => meter.createUpDownCounter(metric.name, metric);
  const counter = (metric: Metric) => meter.createCounter(metric.name, metric);
  const gauge = (metric: Metric) => meter.createObservableGauge(metric.name, metric);
  return {
    acquireDuration: histogram(METRICS.acquireDuration),
    waiters: upDownCounter(METRICS.waiters),
    holdDuration: histogram(METRICS.holdDuration),
    holdsActive: upDownCounter(METRICS.holdsActive),
    holdsLost: counter(METRICS.holdsLost),
    sessionRemaining: gauge(METRICS.sessionRemaining),
    sessionTtl: gauge(METRICS.sessionTtl),
    renewalDuration: histogram(METRICS.renewalDuration),
    leader: gauge(METRICS.leader),
    shardsOwned: gauge(METRICS.shardsOwned),
    shardMoves: counter(METRICS.shardMoves),
    drainDuration: histogram(METRICS.drainDuration),
    failovers: counter(METRICS.failovers),
  };
}
