import { SpanStatusCode, type Context, type Span, type Tracer } from "@opentelemetry/api";
import type { ClusterMessage } from "../diagnostics/messages.js";
import { exceptionOf } from "./attributes.js";
import type { Backlog } from "./backlog.js";
import type { Labels } from "./series.js";
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
  readonly backlog: Backlog;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** Milliseconds since 1970. */
  readonly wallTime: () => number;
}

/** Assigns a number to each cluster. The identity of `hosts` distinguishes clusters. */
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

/** Where and when a span begins. */
export interface Origin {
  /** Of the caller: both spans of a lock are children of the span that is active there. */
  readonly parent: Context;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** Marks a span as failed. `at`: milliseconds since 1970. */
export function fail(
  span: Span,
  error: unknown,
  { names, at }: { readonly names: boolean; readonly at: number },
): void {
  const exception = exceptionOf(error, names);
  span.recordException(exception, at);
  span.setStatus({ code: SpanStatusCode.ERROR, message: exception.name });
}
