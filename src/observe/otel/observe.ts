import {
  type Attributes,
  type BatchObservableCallback,
  type BatchObservableResult,
  context,
  type Meter,
  type Observable,
  type ObservableCallback,
  type ObservableResult,
  type Span,
  SpanKind,
} from "@opentelemetry/api";
import {
  acquireChannel,
  electionChannel,
  holdEndChannel,
  holdLongChannel,
  memberChannel,
  renewedChannel,
  sessionChannel,
  shardChannel,
} from "../../base/telemetry/channels.js";
import type {
  AcquireMessage,
  AcquireOutcome,
  ClusterMessage,
  ElectionMessage,
  HoldEndMessage,
  HoldEndReason,
  HoldLongMessage,
  MemberMessage,
  RenewedMessage,
  SessionMessage,
  ShardMessage,
} from "../../base/telemetry/messages.js";
import { ATTRIBUTES, holderAttributes, lockAttributes, type Series } from "./metrics.js";
import {
  type Backlog,
  BoundedMap,
  fail,
  guard,
  type Origin,
  Subscriptions,
  type Telemetry,
} from "./telemetry.js";

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

/** More locks than one process holds in earnest; the memory of so many spans is what the table may take. */
const MAX_OPEN = 100_000;
/** A hold can end before the call that was granted it returns, which happens at once or never. */
const MAX_EARLY = 1000;
/** The ends of a hold that its holder did not ask for. */
const LOSSES: readonly HoldEndReason[] = ["max_hold", "unhealthy", "expired", "revoked", "deleted", "closed"];

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
    for (const reason of LOSSES) telemetry.instruments.holdsLost.add(0, { [ATTRIBUTES.reason]: reason });
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
    const { reason, heldMs } = message;
    const id = this.#idOf(message);
    const hold = this.#open.take(id);
    const parent = hold?.origin.parent;
    instruments.holdDuration.record(heldMs / 1000, series.of(message).ended(reason), parent);
    if (reason !== "released") instruments.holdsLost.add(1, { [ATTRIBUTES.reason]: reason }, parent);
    // The clock of `heldMs` is the more exact one.
    if (hold) this.#end(hold, message, Math.max(at, hold.origin.at + heldMs));
    else this.#early.set(id, true);
  }

  #end(hold: OpenHold, { reason, heldMs, error }: HoldEndMessage, at: number): void {
    hold.span.setAttributes({ [ATTRIBUTES.reason]: reason, [ATTRIBUTES.heldMs]: heldMs });
    const { names } = this.telemetry;
    if (reason !== "released" && reason !== "closed") fail(hold.span, error, { names, at });
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

const MAX_SESSIONS = 10_000;
/** The part of a TTL after which a session is lost: that of `lock/session/lease.ts`. */
export const USED_PART = 0.9;

interface Session {
  readonly ttlMs: number;
  /** On the clock of the telemetry. */
  readonly deadline: number;
}

/** How long the sessions of this process last if nothing else is renewed. */
class Sessions {
  readonly #open = new BoundedMap<string, Session>(MAX_SESSIONS);

  constructor(private readonly telemetry: Telemetry) {}

  changed(message: SessionMessage): void {
    const { to, ttlSeconds, remainingMs } = message;
    const id = this.#idOf(message);
    if (to === "lost" || to === "closed") return void this.#open.take(id);
    this.#open.set(id, { ttlMs: ttlSeconds * 1000, deadline: this.telemetry.now() + remainingMs });
  }

  renewed(message: RenewedMessage): void {
    const ttlMs = message.ttlSeconds * 1000;
    const sent = this.telemetry.now() - message.durationMs;
    this.#open.set(this.#idOf(message), { ttlMs, deadline: sent + ttlMs * USED_PART });
    this.telemetry.instruments.renewalDuration.record(message.durationMs / 1000);
  }

  /** One session stands for all: their number has no limit, and the shortest of them shows the trouble. */
  observe(result: BatchObservableResult): void {
    this.#dropDead();
    const { now, instruments } = this.telemetry;
    const left = ({ deadline, ttlMs }: Session) => Math.max(0, deadline - now()) / ttlMs;
    const sessions = [...this.#open.entries()].map(([, session]) => session);
    const [worst] = sessions.sort((a, b) => left(a) - left(b));
    // An SDK repeats the last value of a gauge that is not observed: without a session, both are 0.
    const remainingMs = worst ? Math.max(0, worst.deadline - now()) : 0;
    result.observe(instruments.sessionRemaining, remainingMs / 1000);
    result.observe(instruments.sessionTtl, (worst?.ttlMs ?? 0) / 1000);
  }

  /** A session ends soon after its deadline. One that is still here then has ended unseen. */
  #dropDead(): void {
    for (const [id, { deadline, ttlMs }] of this.#open.entries())
      if (this.telemetry.now() > deadline + ttlMs) this.#open.take(id);
  }

  forget(): void {
    this.#open.takeAll();
  }

  #idOf(message: ClusterMessage & { readonly leaseId: bigint }): string {
    return `${this.telemetry.clusters.numberOf(message)} ${message.leaseId}`;
  }
}

const MAX_LEADERSHIPS = 10_000;

/** Whether this process leads, by label of the election. */
class Elections {
  /** Every label that was seen, so that a process that does not lead reports 0; `Labels` limits their number. */
  readonly #labels = new Set<string>();
  /** The labels of the leaderships under way. */
  readonly #led = new BoundedMap<string, string>(MAX_LEADERSHIPS);

  constructor(private readonly telemetry: Telemetry) {}

  changed(message: ElectionMessage): void {
    const { labels, clusters } = this.telemetry;
    const label = labels.of(message.label);
    this.#labels.add(label);
    // Candidates of one process have one owner, and a loss may be told after the next one of them leads.
    const id = JSON.stringify([clusters.numberOf(message), message.name, String(message.fence)]);
    if (message.state === "elected") this.#led.set(id, label);
    else this.#led.take(id);
  }

  observe(result: ObservableResult): void {
    const led = new Set([...this.#led.entries()].map(([, label]) => label));
    for (const label of this.#labels) result.observe(led.has(label) ? 1 : 0, { [ATTRIBUTES.label]: label });
  }

  forget(): void {
    this.#labels.clear();
    this.#led.takeAll();
  }
}

const MAX_SHARDS = 100_000;
/** How a shard may leave: its work has settled in `drainMs`, or later, or its lock was lost. */
const SHARD_OUTCOMES = ["moved", "late", "lost"] as const;

/** The shards that this process owns, and how it has ceased to own others, by label of the group. */
class Shards {
  /** Every label that was seen; `Labels` limits their number. */
  readonly #labels = new Set<string>();
  readonly #owned = new BoundedMap<string, { readonly label: string; isLate: boolean }>(MAX_SHARDS);

  constructor(private readonly telemetry: Telemetry) {}

  changed(message: ShardMessage): void {
    const { clusters, labels, instruments } = this.telemetry;
    const { name, shard, fence, state, drainMs } = message;
    const label = labels.of(message.label);
    if (!this.#labels.has(label)) for (const outcome of SHARD_OUTCOMES) this.#count(label, outcome, 0);
    this.#labels.add(label);
    const id = JSON.stringify([clusters.numberOf(message), name, shard, String(fence)]);
    if (state === "owned") this.#owned.set(id, { label, isLate: false });
    const owned = this.#owned.get(id);
    if (state === "stuck" && owned) owned.isLate = true;
    if (state !== "moved" && state !== "lost") return;
    this.#owned.take(id);
    this.#count(label, state === "moved" && owned?.isLate ? "late" : state, 1);
    if (drainMs !== undefined)
      instruments.drainDuration.record(drainMs / 1000, { [ATTRIBUTES.label]: label });
  }

  #count(label: string, outcome: (typeof SHARD_OUTCOMES)[number], by: number): void {
    const attributes = { [ATTRIBUTES.label]: label, [ATTRIBUTES.outcome]: outcome };
    this.telemetry.instruments.shardMoves.add(by, attributes);
  }

  observe(result: ObservableResult): void {
    const counts = new Map([...this.#labels].map((label) => [label, 0]));
    for (const [, { label }] of this.#owned.entries()) counts.set(label, (counts.get(label) ?? 0) + 1);
    for (const [label, count] of counts) result.observe(count, { [ATTRIBUTES.label]: label });
  }

  forget(): void {
    this.#labels.clear();
    this.#owned.takeAll();
  }
}

/** Counts how often a member was left. */
class Failovers {
  constructor(private readonly telemetry: Telemetry) {
    for (const state of ["down", "refused"]) this.#count(state, 0);
  }

  changed({ state }: MemberMessage): void {
    if (state !== "up") this.#count(state, 1);
  }

  #count(state: string, by: number): void {
    this.telemetry.instruments.failovers.add(by, { [ATTRIBUTES.memberState]: state });
  }
}

/** Subscribes to the channels. @returns what ends it */
export function observe(telemetry: Telemetry, meter: Meter): () => void {
  const holds = new Holds(telemetry);
  const calls = new Acquisitions(telemetry, holds);
  const sessions = new Sessions(telemetry);
  const elections = new Elections(telemetry);
  const shards = new Shards(telemetry);
  const failovers = new Failovers(telemetry);
  const stopGauges = observeGauges({ sessions, elections, shards }, telemetry, meter);
  const subscriptions = subscribe({ holds, calls, sessions, elections, shards, failovers }, telemetry);
  return () => {
    subscriptions.cancel();
    telemetry.backlog.flush();
    guard(stopGauges);
    for (const observer of [calls, holds, sessions, elections, shards]) observer.forget();
    telemetry.backlog.flush();
  };
}

interface Observers {
  readonly holds: Holds;
  readonly calls: Acquisitions;
  readonly sessions: Sessions;
  readonly elections: Elections;
  readonly shards: Shards;
  readonly failovers: Failovers;
}

function subscribe(observers: Observers, { backlog, wallTime }: Telemetry): Subscriptions {
  const { holds, calls, sessions, elections, shards, failovers } = observers;
  const subscriptions = new Subscriptions();
  subscriptions.on<AcquireMessage>(acquireChannel.start, (message) => {
    const origin = { parent: context.active(), at: wallTime() };
    backlog.add(() => calls.started(message, origin));
  });
  subscriptions.on<AcquireMessage>(acquireChannel.asyncEnd, (message) =>
    backlog.add(() => calls.ended(message)),
  );
  subscriptions.on(holdEndChannel, (message) => {
    const at = wallTime();
    backlog.add(() => holds.ended(message, at));
  });
  subscriptions.on(holdLongChannel, (message) => backlog.add(() => holds.long(message)));
  subscriptions.on(sessionChannel, (message) => sessions.changed(message));
  subscriptions.on(renewedChannel, (message) => sessions.renewed(message));
  subscriptions.on(electionChannel, (message) => elections.changed(message));
  subscriptions.on(shardChannel, (message) => shards.changed(message));
  subscriptions.on(memberChannel, (message) => failovers.changed(message));
  return subscriptions;
}

function observeGauges(
  { sessions, elections, shards }: Pick<Observers, "sessions" | "elections" | "shards">,
  { instruments, backlog }: Telemetry,
  meter: Meter,
): () => void {
  const { sessionRemaining, sessionTtl, leader, shardsOwned } = instruments;
  const gauges = new Gauges(meter, backlog);
  gauges.addBatch([sessionRemaining, sessionTtl], (result) => sessions.observe(result));
  gauges.add(leader, (result) => elections.observe(result));
  gauges.add(shardsOwned, (result) => shards.observe(result));
  return () => gauges.remove();
}

/** What is read with each collection, which calls these observers before it reads counters and histograms. */
class Gauges {
  readonly #remove: (() => void)[] = [];

  constructor(
    private readonly meter: Meter,
    private readonly backlog: Backlog,
  ) {}

  add(instrument: Observable, observe: ObservableCallback): void {
    const callback: ObservableCallback = (result) => this.#observe(() => void observe(result));
    instrument.addCallback(callback);
    this.#remove.push(() => instrument.removeCallback(callback));
  }

  addBatch(instruments: Observable[], observe: BatchObservableCallback): void {
    const callback: BatchObservableCallback = (result) => this.#observe(() => void observe(result));
    this.meter.addBatchObservableCallback(callback, instruments);
    this.#remove.push(() => this.meter.removeBatchObservableCallback(callback, instruments));
  }

  remove(): void {
    for (const remove of this.#remove.splice(0)) remove();
  }

  #observe(run: () => void): void {
    this.backlog.flush();
    guard(run);
  }
}
