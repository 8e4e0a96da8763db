import type { Span } from "@opentelemetry/api";
import type {
  AcquireMessage,
  ClusterMessage,
  HoldEndMessage,
  HoldEndReason,
  HoldLongMessage,
} from "../diagnostics/messages.js";
import { ATTRIBUTES, holderAttributes, lockAttributes } from "./attributes.js";
import { BoundedMap } from "./bounded-map.js";
import { guard } from "./subscriptions.js";
import type { Series } from "./series.js";
import { fail, type Origin, type Telemetry } from "./telemetry.js";

/** More locks than one process holds in earnest; the memory of so many spans is what the table may take. */
const MAX_OPEN = 100_000;
/** A hold can end before the call that was granted it returns, which happens at once or never. */
const MAX_EARLY = 1000;
/** The ends of a hold that its holder did not ask for. */
const LOSSES: readonly HoldEndReason[] = ["max hold", "expired", "revoked", "deleted", "closed"];

interface OpenHold {
  readonly span: Span;
  readonly origin: Origin;
  readonly series: Series;
}

type Identity = ClusterMessage & { readonly key: string; readonly revision: bigint };

/** Spans and metrics of holds, from the grant to the release or the loss. */
export class Holds {
  readonly #open: BoundedMap<string, OpenHold>;
  readonly #early = new BoundedMap<string, true>(MAX_EARLY);

  constructor(
    private readonly telemetry: Telemetry,
    most = MAX_OPEN,
  ) {
    this.#open = new BoundedMap(most);
    // A counter that appears with its first loss has not increased, as monitoring systems see it.
    for (const why of LOSSES) telemetry.instruments.holdsLost.add(0, { [ATTRIBUTES.why]: why });
  }

  /** A call was granted a lock. */
  granted(message: AcquireMessage, origin: Origin): void {
    const { key, revision, owner, fence } = message;
    if (key === undefined || revision === undefined) return;
    const id = this.#idOf({ hosts: message.hosts, key, revision });
    if (this.#early.take(id)) return;
    const { tracer, series: table, names } = this.telemetry;
    const attributes = { ...lockAttributes(message, names), ...holderAttributes(owner, fence) };
    const span = tracer.startSpan("leasehold.hold", { attributes, startTime: origin.at }, origin.parent);
    const series = table.of(message);
    series.addHolds(1);
    const oldest = this.#open.set(id, { span, origin, series });
    if (oldest) this.#close(oldest);
  }

  long(message: HoldLongMessage): void {
    const { warnHoldMs, heldMs } = message;
    const hold = this.#open.get(this.#idOf(message));
    const attributes = { [ATTRIBUTES.warnHoldMs]: warnHoldMs };
    hold?.span.addEvent("leasehold.hold.long", attributes, hold.origin.at + heldMs);
  }

  /** `at`: when the message was published, in milliseconds since 1970. */
  ended(message: HoldEndMessage, at: number): void {
    const { instruments, series } = this.telemetry;
    const { why, heldMs } = message;
    const id = this.#idOf(message);
    const hold = this.#open.take(id);
    const parent = hold?.origin.parent;
    instruments.holdDuration.record(heldMs / 1000, series.of(message).ended(why), parent);
    if (why !== "released") instruments.holdsLost.add(1, { [ATTRIBUTES.why]: why }, parent);
    // The clock of `heldMs` is the more exact one.
    if (hold) this.#end(hold, message, Math.max(at, hold.origin.at + heldMs));
    else this.#early.set(id, true);
  }

  #end(hold: OpenHold, { why, heldMs, reason }: HoldEndMessage, at: number): void {
    hold.span.setAttributes({ [ATTRIBUTES.why]: why, [ATTRIBUTES.heldMs]: heldMs });
    const { names } = this.telemetry;
    if (why !== "released" && why !== "closed") fail(hold.span, reason, { names, at });
    this.#close(hold, at);
  }

  #close({ span, origin, series }: OpenHold, at?: number): void {
    series.addHolds(-1);
    span.end(at ?? Math.max(origin.at, this.telemetry.wallTime()));
  }

  /** Ends all spans as they are. */
  forget(): void {
    for (const hold of this.#open.takeAll()) guard(() => this.#close(hold));
    this.#early.takeAll();
  }

  #idOf(hold: Identity): string {
    return `${this.telemetry.clusters.numberOf(hold)} ${hold.revision} ${hold.key}`;
  }
}
