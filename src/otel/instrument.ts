import { Labels } from "./labels.js";
import { instrumentsOf } from "./metrics.js";
import { observe } from "./observe.js";
import { checkInstrument, type InstrumentOptions } from "./options.js";
import { SeriesTable } from "./series.js";
import { Clusters, type Telemetry } from "./telemetry.js";

export type { InstrumentOptions } from "./options.js";

/** What `instrument` returns. `using` ends it at the end of a block. */
export interface Instrumentation {
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
 * @throws TypeError or RangeError for options that are none
 */
export function instrument(options?: InstrumentOptions): Instrumentation {
  const { tracerProvider, meterProvider, names, maxLabels } = checkInstrument(options);
  const meter = meterProvider.getMeter(SCOPE);
  const labels = new Labels(maxLabels);
  const telemetry: Telemetry = {
    tracer: tracerProvider.getTracer(SCOPE),
    instruments: instrumentsOf(meter),
    labels,
    series: new SeriesTable(labels),
    clusters: new Clusters(),
    names,
    now: () => performance.now(),
  };
  const stop = observe(telemetry, meter);
  return { disable: stop, [Symbol.dispose]: stop };
}
