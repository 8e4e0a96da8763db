import type { CheckedConnect } from "../options/connect.js";
import { AbortFanOut } from "../async/abort-fan-out.js";
import type { Keepalive } from "../etcd/keepalive.js";
import type { EtcdClient } from "../etcd/client.js";
import type { WatchHub } from "../etcd/watch/hub.js";
import type { Lease } from "./lease.js";
import { typeError } from "../options/check.js";
import type { Clock } from "../async/clock.js";

/** What all sessions of one cluster share. */
export interface Connection {
  readonly options: CheckedConnect;
  readonly client: EtcdClient;
  readonly keepalive: Keepalive;
  readonly watches: WatchHub;
  readonly clock: Clock;
  readonly aborts: AbortFanOut;
  /** An intermediary between here and etcd sends requests twice: a join that was sent once has found its own key. */
  readonly path: { requestsAreRepeated: boolean };
  readonly leases: Set<Lease>;
  /** Leases of failed openings that are being revoked. */
  readonly revoking: Set<Promise<void>>;
  /** Aborts with SessionClosedError when the cluster is closed. */
  readonly closing: AbortController;
}

const connections = new WeakMap<object, Connection>();

/** The inside of a cluster, for the rest of the library; a cluster is opaque to its users. */
export function connectionOf(cluster: object): Connection {
  const connection = connections.get(cluster);
  if (connection === undefined) throw typeError("cluster", "a Cluster, made by connect()", cluster);
  return connection;
}

export const isCluster = (value: unknown): boolean =>
  typeof value === "object" && value !== null && connections.has(value);

export function register(cluster: object, connection: Connection): void {
  connections.set(cluster, connection);
}

/**
 * Called when a session has ended. Cancels the idle watches with the last live session: before that the other sessions
 * may reuse them, and after it they would only keep the process alive.
 */
export function closeIdleWatches({ watches, leases }: Connection): void {
  const noneIsLive = [...leases].every(({ signal }) => signal.aborted);
  if (noneIsLive) watches.dropIdleWatches();
  watches.closeIdleStreams();
}
