import { type MeterProvider, metrics, trace, type TracerProvider } from "@opentelemetry/api";
import { checkBoolean, checkInteger, checkOptions, typeError } from "../../base/options/check.js";

/** All are optional. */
export interface InstrumentOptions {
  /**
   * Makes the spans. Default: the global one of `@opentelemetry/api`, also if it is registered later. A span has the status "error", with
   * the class and the code of the error, for the outcomes `session_lost`, `session_closed` and `error`, and for a hold that was lost
   * otherwise than as `closed`. `leasehold.owner` has at most 100 characters.
   */
  readonly tracerProvider?: TracerProvider | undefined;
  /** Makes the metrics. Default: the global one of `@opentelemetry/api`, as it is registered at the time of the call. */
  readonly meterProvider?: MeterProvider | undefined;
  /**
   * Whether spans have the names of locks, and the messages of errors, which contain names: at most 200 and 500 characters,
   * without control characters. Default: false, as names may contain data of users. Metrics never have names.
   */
  readonly names?: boolean | undefined;
  /** How many labels metrics tell apart, 0 to 10,000; later ones count as "other". Default: 100. */
  readonly maxLabels?: number | undefined;
}

interface CheckedInstrument {
  readonly tracerProvider: TracerProvider;
  readonly meterProvider: MeterProvider;
  readonly names: boolean;
  readonly maxLabels: number;
}

export function checkInstrument(options: unknown): CheckedInstrument {
  const given = checkOptions("instrument", options, [
    "tracerProvider",
    "meterProvider",
    "names",
    "maxLabels",
  ]);
  return {
    tracerProvider: checkTracerProvider(given.tracerProvider),
    meterProvider: checkMeterProvider(given.meterProvider),
    names: checkBoolean("names", given.names),
    maxLabels: checkInteger("maxLabels", given.maxLabels, { min: 0, max: 10_000, fallback: 100 }),
  };
}

function checkTracerProvider(value: unknown): TracerProvider {
  if (value === undefined) return trace.getTracerProvider();
  if (!hasMethod(value, "getTracer")) throw typeError("tracerProvider", "an object with getTracer", value);
  return value as TracerProvider;
}

function checkMeterProvider(value: unknown): MeterProvider {
  if (value === undefined) return metrics.getMeterProvider();
  if (!hasMethod(value, "getMeter")) throw typeError("meterProvider", "an object with getMeter", value);
  return value as MeterProvider;
}

const hasMethod = (value: unknown, method: string): boolean =>
  typeof value === "object" &&
  value !== null &&
  typeof (value as Readonly<Record<string, unknown>>)[method] === "function";
