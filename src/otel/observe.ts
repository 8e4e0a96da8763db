import {
  context,
  type BatchObservableCallback,
  type Meter,
  type Observable,
  type ObservableCallback,
} from "@opentelemetry/api";
import {
  acquireChannel,
  electionChannel,
  holdEndChannel,
  holdLongChannel,
  memberChannel,
  renewedChannel,
  sessionChannel,
} from "../diagnostics/channels.js";
import type { AcquireMessage } from "../diagnostics/messages.js";
import { Acquisitions } from "./acquisitions.js";
import type { Backlog } from "./backlog.js";
import { Elections } from "./elections.js";
import { Failovers } from "./failovers.js";
import { Holds } from "./holds.js";
import { Sessions } from "./sessions.js";
import { guard, Subscriptions } from "./subscriptions.js";
import type { Telemetry } from "./telemetry.js";

/** Subscribes to the channels. @returns what ends it */
export function observe(telemetry: Telemetry, meter: Meter): () => void {
  const holds = new Holds(telemetry);
  const calls = new Acquisitions(telemetry, holds);
  const sessions = new Sessions(telemetry);
  const elections = new Elections(telemetry);
  const failovers = new Failovers(telemetry);
  const stopGauges = observeGauges({ sessions, elections }, telemetry, meter);
  const subscriptions = subscribe({ holds, calls, sessions, elections, failovers }, telemetry);
  return () => {
    subscriptions.cancel();
    telemetry.backlog.flush();
    guard(stopGauges);
    for (const observer of [calls, holds, sessions, elections]) observer.forget();
    telemetry.backlog.flush();
  };
}

interface Observers {
  readonly holds: Holds;
  readonly calls: Acquisitions;
  readonly sessions: Sessions;
  readonly elections: Elections;
  readonly failovers: Failovers;
}

function subscribe(observers: Observers, { backlog, wallTime }: Telemetry): Subscriptions {
  const { holds, calls, sessions, elections, failovers } = observers;
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
  subscriptions.on(memberChannel, (message) => failovers.changed(message));
  return subscriptions;
}

function observeGauges(
  { sessions, elections }: Pick<Observers, "sessions" | "elections">,
  { instruments, backlog }: Telemetry,
  meter: Meter,
): () => void {
  const { sessionRemaining, sessionTtl, leader } = instruments;
  const gauges = new Gauges(meter, backlog);
  gauges.addBatch([sessionRemaining, sessionTtl], (result) => sessions.observe(result));
  gauges.add(leader, (result) => elections.observe(result));
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
