import type { BatchObservableCallback, Meter, Observable, ObservableCallback } from "@opentelemetry/api";
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
  const subscriptions = subscribe({ holds, calls, sessions, elections, failovers });
  return () => {
    subscriptions.cancel();
    guard(stopGauges);
    for (const observer of [calls, holds, sessions, elections]) observer.forget();
  };
}

interface Observers {
  readonly holds: Holds;
  readonly calls: Acquisitions;
  readonly sessions: Sessions;
  readonly elections: Elections;
  readonly failovers: Failovers;
}

function subscribe({ holds, calls, sessions, elections, failovers }: Observers): Subscriptions {
  const subscriptions = new Subscriptions();
  subscriptions.on<AcquireMessage>(acquireChannel.start, (message) => calls.started(message));
  subscriptions.on<AcquireMessage>(acquireChannel.asyncEnd, (message) => calls.ended(message));
  subscriptions.on(holdEndChannel, (message) => holds.ended(message));
  subscriptions.on(holdLongChannel, (message) => holds.long(message));
  subscriptions.on(sessionChannel, (message) => sessions.changed(message));
  subscriptions.on(renewedChannel, (message) => sessions.renewed(message));
  subscriptions.on(electionChannel, (message) => elections.changed(message));
  subscriptions.on(memberChannel, (message) => failovers.changed(message));
  return subscriptions;
}

function observeGauges(
  { sessions, elections }: Pick<Observers, "sessions" | "elections">,
  { series, instruments }: Telemetry,
  meter: Meter,
): () => void {
  const { sessionRemaining, sessionTtl, leader, waiters, holdsActive } = instruments;
  const ofSessions: BatchObservableCallback = (result) => guard(() => sessions.observe(result));
  meter.addBatchObservableCallback(ofSessions, [sessionRemaining, sessionTtl]);
  const stop = [
    observeEach(leader, (result) => elections.observe(result)),
    observeEach(waiters, (result) =>
      series.all().forEach((each) => result.observe(each.waiters, each.attributes)),
    ),
    observeEach(holdsActive, (result) =>
      series.all().forEach((each) => result.observe(each.holds, each.attributes)),
    ),
  ];
  return () => {
    meter.removeBatchObservableCallback(ofSessions, [sessionRemaining, sessionTtl]);
    for (const each of stop) each();
  };
}

/** @returns what ends it */
function observeEach(instrument: Observable, observe: ObservableCallback): () => void {
  const guarded: ObservableCallback = (result) => guard(() => void observe(result));
  instrument.addCallback(guarded);
  return () => instrument.removeCallback(guarded);
}
