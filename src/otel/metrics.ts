import type {
  Counter,
  Histogram,
  Meter,
  MetricOptions,
  ObservableGauge,
  UpDownCounter,
} from "@opentelemetry/api";

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
  sessionTtl: { name: "leasehold.session.ttl", unit: "s", description: "TTL of that session." },
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
  failovers: {
    name: "leasehold.failovers",
    unit: "{failover}",
    description: "How often a member of etcd was left.",
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
    failovers: counter(METRICS.failovers),
  };
}
