import { SpanKind, type Attributes, type Span } from "@opentelemetry/api";
import type { AcquireMessage, AcquireOutcome } from "../diagnostics/messages.js";
import { ATTRIBUTES, holderAttributes, lockAttributes } from "./attributes.js";
import { BoundedMap } from "./bounded-map.js";
import type { Holds } from "./holds.js";
import { guard } from "./subscriptions.js";
import type { Series } from "./series.js";
import { fail, type Origin, type Telemetry } from "./telemetry.js";

const MAX_OPEN = 100_000;
/** The other outcomes are answers that a program expects; the caller decides whether they are errors. */
const FAILURES: readonly AcquireOutcome[] = ["session_lost", "session_closed", "error"];

interface OpenCall {
  readonly span: Span;
  readonly origin: Origin;
  readonly series: Series;
  readonly tries: boolean;
}

/** Spans and metrics of the calls that take a lock. */
export class Acquisitions {
  readonly #open: BoundedMap<AcquireMessage, OpenCall>;

  constructor(
    private readonly telemetry: Telemetry,
    private readonly holds: Holds,
    most = MAX_OPEN,
  ) {
    this.#open = new BoundedMap(most);
  }

  started(message: AcquireMessage, origin: Origin): void {
    const { tracer, series: table, names } = this.telemetry;
    const { tries } = message;
    const attributes = lockAttributes(message, names);
    attributes[ATTRIBUTES.tries] = tries;
    const how = { kind: SpanKind.CLIENT, attributes, startTime: origin.at };
    const span = tracer.startSpan("leasehold.acquire", how, origin.parent);
    const series = table.of(message);
    if (!tries) series.addWaiters(1);
    const oldest = this.#open.set(message, { span, origin, series, tries });
    if (oldest) this.#close(oldest);
  }

  /** Calls that began before anybody listened are not known here. */
  ended(message: AcquireMessage): void {
    const call = this.#open.take(message);
    if (!call) return;
    const { instruments, names } = this.telemetry;
    const outcome = message.outcome ?? "error";
    const { waitedMs = 0 } = message;
    instruments.acquireDuration.record(waitedMs / 1000, call.series.outcome(outcome), call.origin.parent);
    if (call.span.isRecording()) call.span.setAttributes(endAttributes(message, outcome, waitedMs));
    const at = call.origin.at + waitedMs;
    if (FAILURES.includes(outcome)) fail(call.span, message.error, { names, at });
    this.#close(call, at);
    if (outcome === "granted") this.holds.granted(message, { parent: call.origin.parent, at });
  }

  #close({ span, origin, series, tries }: OpenCall, at?: number): void {
    if (!tries) series.addWaiters(-1);
    span.end(at ?? Math.max(origin.at, this.telemetry.wallTime()));
  }

  /** Ends all spans as they are. */
  forget(): void {
    for (const call of this.#open.takeAll()) guard(() => this.#close(call));
  }
}

function endAttributes(message: AcquireMessage, outcome: AcquireOutcome, waitedMs: number): Attributes {
  const attributes = holderAttributes(message.owner, message.fence);
  attributes[ATTRIBUTES.outcome] = outcome;
  attributes[ATTRIBUTES.waitedMs] = waitedMs;
  if (message.ahead !== undefined) attributes[ATTRIBUTES.ahead] = message.ahead;
  return attributes;
}
