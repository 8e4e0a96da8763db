import { SpanStatusCode, type Span, type Tracer } from "@opentelemetry/api";
import type { ClusterMessage } from "../diagnostics/messages.js";
import { exceptionOf } from "./attributes.js";
import type { Labels } from "./labels.js";
import type { Instruments } from "./metrics.js";
import type { SeriesTable } from "./series.js";

/** What every observer writes to. */
export interface Telemetry {
  readonly tracer: Tracer;
  readonly instruments: Instruments;
  readonly labels: Labels;
  readonly series: SeriesTable;
  readonly clusters: Clusters;
  /** Whether spans have the names of locks. */
  readonly names: boolean;
  /** Monotonic milliseconds. */
  readonly now: () => number;
}

/** Numbers the clusters, which are told apart by the identity of their `hosts`. */
export class Clusters {
  readonly #numbers = new WeakMap<readonly string[], number>();
  #last = 0;

  numberOf({ hosts }: ClusterMessage): number {
    const known = this.#numbers.get(hosts);
    if (known !== undefined) return known;
    this.#numbers.set(hosts, ++this.#last);
    return this.#last;
  }
}

/** Marks a span as failed. */
export function fail(span: Span, error: unknown, names: boolean): void {
  const exception = exceptionOf(error, names);
  span.recordException(exception);
  span.setStatus({ code: SpanStatusCode.ERROR, message: exception.name });
}
