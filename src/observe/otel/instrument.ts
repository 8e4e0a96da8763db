// Spans and metrics of OpenTelemetry, from the messages of `base/telemetry/`: the entry `leasehold/otel` of the package. No other
// folder imports this one or loads `@opentelemetry/api`.
// - Nothing that an SDK throws reaches the library: each subscriber is guarded (`Subscriptions`), because
//   `node:diagnostics_channel` makes an uncaught exception of what a subscriber throws.
// - The memory has a limit: whatever has begun and not ended is in a `BoundedMap`, and leaves with `disable` at the latest.
// - Metrics have attributes with few values: `Labels` limits those of `leasehold.label`, and no metric has a name or an
//   owner.
// - A span has no name of a lock and no message of an error, unless the user asks for them. Texts are printable and bounded.
// - Spans and metrics of locks are created in batches (`Backlog`), with the times of the messages. A collection of metrics,
//   `flush` and `disable` create them at once.
// - A hold is identified by its `hosts` array, its key and its create revision (`Holds`), since keys are used again.
import { systemClock } from "../../base/util/clock.js";
import { instrumentsOf, Labels, SeriesTable } from "./metrics.js";
import { observe } from "./observe.js";
import { checkInstrument, type InstrumentOptions } from "./options.js";
import { Backlog, Clusters, type Telemetry } from "./telemetry.js";

export type { InstrumentOptions } from "./options.js";

/** Returned by `instrument`. `using` ends it at the end of a block. */
export interface Instrumentation {
  /**
   * Makes the spans and metrics of what has happened until now. Otherwise they are made at most 50 ms later, and before
   * each collection of metrics, with the times of the events. A span processor gets the context of the caller as an argument, and does
   * not run in it. Call it, or `disable()`, before you shut the SDK down.
   */
  flush(): void;
  /** Ends it: no further spans and metrics; the spans that are open end now, without an outcome. Idempotent. */
  disable(): void;
  [Symbol.dispose](): void;
}

const SCOPE = "leasehold";

/**
 * Makes spans and metrics of what all clusters of this process do from now on, by the channels `leasehold.*` of
 * `node:diagnostics_channel`, until `disable()`. Call it once, after the SDK of OpenTelemetry has been started: a second call
 * counts everything a second time. docs/observability.md lists the spans, the metrics and their attributes. An error in the
 * SDK never reaches the library: it goes to `diag` of `@opentelemetry/api`.
 *
 * @throws {TypeError | RangeError} on bad options.
 */
export function instrument(options?: InstrumentOptions): Instrumentation {
  const { tracerProvider, meterProvider, names, maxLabels } = checkInstrument(options);
  const meter = meterProvider.getMeter(SCOPE);
  const instruments = instrumentsOf(meter);
  const labels = new Labels(maxLabels);
  const series = new SeriesTable(labels);
  const telemetry: Telemetry = {
    tracer: tracerProvider.getTracer(SCOPE),
    instruments,
    labels,
    series,
    clusters: new Clusters(),
    names,
    backlog: new Backlog(systemClock, () => series.report(instruments)),
    now: () => performance.now(),
    wallTime: () => Date.now(),
  };
  const stop = observe(telemetry, meter);
  return { flush: () => telemetry.backlog.flush(), disable: stop, [Symbol.dispose]: stop };
}
