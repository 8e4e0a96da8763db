import type { ChannelListener } from "node:diagnostics_channel";
import { type Context, diag, type Span, SpanStatusCode, type Tracer } from "@opentelemetry/api";
import type { ClusterMessage } from "../../base/telemetry/messages.js";
import type { Clock, Timer } from "../../base/util/clock.js";
import { ContextResource } from "../../base/util/own-context.js";
import { printable } from "../../base/util/printable.js";
import { exceptionOf, type Instruments, type Labels, type SeriesTable } from "./metrics.js";

/** A table of what has begun and not ended. If an end is never reported, its entry leaves when the table is full. */
export class BoundedMap<K, V> {
  readonly #entries = new Map<K, V>();

  constructor(private readonly most: number) {}

  get size(): number {
    return this.#entries.size;
  }

  get(key: K): V | undefined {
    return this.#entries.get(key);
  }

  entries(): IterableIterator<[K, V]> {
    return this.#entries.entries();
  }

  /** @returns the oldest value, if it had to leave */
  set(key: K, value: V): V | undefined {
    this.#entries.set(key, value);
    if (this.#entries.size <= this.most) return undefined;
    for (const oldest of this.#entries.keys()) return this.take(oldest);
    return undefined;
  }

  /** Removes an entry. @returns its value */
  take(key: K): V | undefined {
    const value = this.#entries.get(key);
    this.#entries.delete(key);
    return value;
  }

  /** Removes all entries. @returns their values */
  takeAll(): V[] {
    const values = [...this.#entries.values()];
    this.#entries.clear();
    return values;
  }
}

/** Both kinds of channels: those with a type of message, and those that Node.js makes for a tracing channel. */
interface Subscribable<M> {
  publish(message: M): void;
  subscribe(listener: ChannelListener): void;
  unsubscribe(listener: ChannelListener): void;
}

/** The subscriptions of one call of `instrument`. */
export class Subscriptions {
  readonly #cancel: (() => void)[] = [];

  on<M>(channel: Subscribable<M>, handle: (message: M) => void): void {
    const listener: ChannelListener = (message) => guard(() => handle(message as M));
    channel.subscribe(listener);
    this.#cancel.push(() => channel.unsubscribe(listener));
  }

  cancel(): void {
    for (const cancel of this.#cancel.splice(0)) cancel();
  }
}

/**
 * An error that a subscriber throws becomes an uncaught exception of the process, by `node:diagnostics_channel`. A sampler, a
 * span processor or a metric reader may throw any, so they go to the diagnostic logger of OpenTelemetry.
 */
export function guard(run: () => void): void {
  try {
    run();
  } catch (error) {
    report(error);
  }
}

function report(error: unknown): void {
  try {
    diag.error(`leasehold/otel: ${printable(String(error))}`);
  } catch {
    // The logger, or a conversion to a string, is code of others, too; nothing is left to report to.
  }
}

const MOST = 256;
const DELAY_MS = 50;

/**
 * Runs the work of subscribers later, in batches. Between two messages of a lock, the same work takes several times as much
 * processor time, because its code and data are not in the caches of the processor. `scripts/otel-cost.js` measures the cost.
 */
export class Backlog {
  readonly #due: (() => void)[] = [];
  #timer: Timer | undefined;
  /** Without it, the work for one caller would run in the async context of another. */
  readonly #context = new ContextResource("leasehold/otel");

  /** `flushed` is called after each flush. */
  constructor(
    private readonly clock: Pick<Clock, "after">,
    private readonly flushed: () => void,
  ) {}

  add(run: () => void): void {
    this.#due.push(run);
    if (this.#due.length >= MOST) this.flush();
    else this.#timer ??= this.#later();
  }

  /** Runs all entries in the order in which they were added. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#context.runInAsyncScope(() => this.#run());
  }

  /** A flush that an entry starts continues with the remaining entries. */
  #run(): void {
    for (let left = this.#due.length; left > 0; left--) {
      const run = this.#due.shift();
      if (run) guard(run);
    }
    guard(this.flushed);
  }

  #later(): Timer {
    const timer = this.clock.after(DELAY_MS, () => this.flush());
    timer.unref?.();
    return timer;
  }
}

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
  /** The context of the caller: both spans of a lock are children of the span that is active there. */
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
