import type { EtcdClient } from "../../etcd/client.js";
import { Keepalive, type Keeper } from "../../etcd/keepalive.js";
import { WatchHub } from "../../etcd/watch-hub.js";
import type { CheckedConnect } from "../../base/options/connect.js";
import type { Reading } from "../queue/contenders.js";
import { AbortFanOut, newController } from "../../base/util/abort.js";
import { type Clock, pause } from "../../base/util/clock.js";
import { Timers } from "../../base/util/timers.js";
import { Guardian } from "../../alive/guardian.js";
import type { Lease } from "./lease.js";
import { ThreadedKeepalive, type StartThread, threadStarter } from "../../alive/threaded-keepalive.js";

/** What a cluster offers to the layers above this folder. */
export interface EtcdServices {
  readonly options: CheckedConnect;
  readonly client: EtcdClient;
  readonly keepalive: Keeper;
  readonly watches: WatchHub;
  readonly clock: Clock;
  /** For what thousands of waits and holds have: one timer of the clock. It keeps the process alive. */
  readonly timers: Timers;
  /** The same for leases, which no crowd of waits delays. */
  readonly leaseTimers: Timers;
  readonly aborts: AbortFanOut;
  /** An intermediary between here and etcd sends requests twice: a join that was sent once has found its own key. */
  readonly path: { requestsAreRepeated: boolean };
  /** Reads of queues under way, by name: hundreds of calls that time out together share one read. */
  readonly readings: Map<string, Promise<Reading>>;
  /** Names above those of long holds, as `reports` above `reports/daily`: etcd is asked once whether they are in use. */
  readonly namesAbove: Set<string>;
  /** Those of this process, until the session has ended or, after a close, until it is revoked. */
  readonly leases: ReadonlySet<Lease>;
  /** Aborts with SessionClosedError when the cluster is closed. */
  readonly closed: AbortSignal;
}

/** What the sessions of one cluster share. */
export interface ClusterState {
  readonly services: EtcdServices;
  readonly leases: Set<Lease>;
  /** Leases of failed openings that are being revoked. */
  readonly revoking: Set<Promise<void>>;
  readonly guardian: Guardian | undefined;
  /** Aborts `services.closed`. */
  readonly closing: AbortController;
  /** Called at the end of each `close()`, after the sessions and connections: it does nothing the second time. */
  readonly onDisconnected: () => void;
}

/** Observes a cluster from its beginning. Returns what is called at the end of each `close()`: see `onDisconnected`. */
export type Observe = (services: EtcdServices) => () => void;

interface ClusterSurroundings {
  readonly clock: Clock;
  readonly observe?: Observe | undefined;
  /** Default: a worker thread of this process. */
  readonly startThread?: StartThread | undefined;
}

export function newClusterState(
  options: CheckedConnect,
  client: EtcdClient,
  { clock, observe = () => () => {}, startThread }: ClusterSurroundings,
): ClusterState {
  const leases = new Set<Lease>();
  // Each opening under way adds a listener.
  const closing = newController();
  const timers = new Timers(clock, true);
  const services: EtcdServices = {
    options,
    client,
    keepalive:
      options.renewal === "worker"
        ? new ThreadedKeepalive(client, clock, startThread ?? threadStarter(options, clock))
        : new Keepalive(client, clock),
    watches: new WatchHub(client, clock, timers),
    clock,
    timers,
    leaseTimers: new Timers(clock, true),
    aborts: new AbortFanOut(),
    path: { requestsAreRepeated: false },
    readings: new Map(),
    namesAbove: new Set(),
    leases,
    closed: closing.signal,
  };
  const guardian = options.guardian ? new Guardian(options, client, clock) : undefined;
  // Not with renewals alone: those may wait for the certificates that the guardian lacks as well.
  const refresh = (): void => guardian?.refresh();
  if (guardian) client.pool.listen({ failed: refresh, suspected: refresh, userRead: refresh });
  return { services, leases, guardian, revoking: new Set(), closing, onDisconnected: observe(services) };
}

/** Closes all connections. First waits for the revocations, for the time of one attempt at most: the leases also expire. */
export async function disconnect(state: ClusterState): Promise<void> {
  const { services, revoking } = state;
  const { options, client, keepalive, watches, clock } = services;
  const revoked = new AbortController();
  void Promise.all(revoking).then(() => revoked.abort());
  await pause(clock, options.requestTimeoutMs, revoked.signal);
  keepalive.close();
  watches.close();
  client.close();
  state.onDisconnected();
}

/**
 * Called when a session has ended. Cancels the idle watches with the last live session: before that the other sessions
 * may reuse them, and after it they would only keep the process alive.
 */
export function closeIdleWatches({ services: { watches }, leases }: ClusterState): void {
  const noneIsLive = [...leases].every(({ signal }) => signal.aborted);
  if (noneIsLive) watches.dropIdleWatches();
  watches.closeIdleStreams();
}
