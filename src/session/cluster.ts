import { checkConnect } from "../options/connect.js";
import { newClusterState, register, stateOf, type ClusterState } from "./connection.js";
import { EtcdUnavailableError, SessionClosedError } from "../errors.js";
import { Etcd3Member } from "../etcd/etcd3/member.js";
import { EtcdClient } from "../etcd/client.js";
import { checkDrain, checkWait, type CheckedWait } from "../options/check.js";
import { leaseOf, Session, type CloseOptions, type SessionOptions, type WaitOptions } from "./session.js";
import { pause, systemClock } from "../async/clock.js";
import { settleWithin } from "../async/settle-within.js";

export interface Credentials {
  /** PEM text of the certificate authority that signed the members' certificates. */
  readonly rootCertificate: Uint8Array;
  /** PEM text of this client's key and certificate, for members that request one. Give both or neither. */
  readonly privateKey?: Uint8Array | undefined;
  readonly certChain?: Uint8Array | undefined;
}

export interface ConnectOptions {
  /** `"http://host:2379"`, or a list. One host name may resolve to several members. `https://` uses TLS. */
  readonly hosts: string | readonly string[];
  readonly credentials?: Credentials | undefined;
  /** User and password. The token is fetched on first use and renewed when etcd rejects it. */
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  /** gRPC channel options, merged over ours. With a `grpc.keepalive_time_ms` below 5000, etcd closes the connection. */
  readonly grpcOptions?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Milliseconds for one attempt on one member, 100..60000; after that, the next member is tried. An attempt for a
   * session takes at most a quarter of its TTL, except for the call that opens the session.
   * @default 2000
   */
  readonly requestTimeoutMs?: number | undefined;
  /** For the session that `cluster.session()` keeps. */
  readonly session?: SessionOptions | undefined;
}

const OPEN_TIMEOUT_MS = 10_000;

let makeCluster: (state: ClusterState) => Cluster;

/** The members of one etcd cluster, and the session that all objects created with it share. Created by `connect`. */
export class Cluster implements AsyncDisposable {
  readonly hosts: readonly string[];
  #standing: Session | undefined;
  #opening: Promise<Session> | undefined;

  static {
    makeCluster = (state) => new Cluster(state);
  }

  private constructor(state: ClusterState) {
    this.hosts = Object.freeze([...state.services.options.hosts]);
    register(this, state);
  }

  /**
   * The cluster's standing session. Opened on first use, and again after the session is lost or its `close()` was called,
   * even while it drains. `timeoutMs` defaults to 10000.
   * On abort: rejects at once with the signal's reason; the session is still opened, for the next caller.
   * @throws {EtcdUnavailableError} when no member granted a lease in time.
   * @throws {EtcdRefusedError} when etcd rejects the request.
   * @throws {SessionClosedError} when the cluster is closed. @throws {TypeError | RangeError} on invalid options.
   */
  async session(options?: WaitOptions): Promise<Session> {
    return this.#session(checkWait("cluster.session", options));
  }

  /**
   * Closes every session of this cluster (see `Session.close`), then all connections. Resolves even when etcd is down.
   * Idempotent.
   * @throws {TypeError | RangeError} on invalid options, and nothing else.
   */
  async close(options?: CloseOptions): Promise<void> {
    const drainMs = checkDrain("close", options);
    const state = stateOf(this);
    const { keepalive, watches, client } = state.services;
    state.closing.abort(new SessionClosedError(0n));
    await this.#opening?.catch(() => undefined);
    await Promise.all([...state.leases].map((lease) => lease.close(drainMs)));
    await this.#revoked(state);
    keepalive.close();
    watches.close();
    client.close();
  }

  /** Same as `close()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Waits while leases of failed openings are revoked, for the time of one attempt at most: they expire by themselves. */
  async #revoked({ services, revoking }: ClusterState): Promise<void> {
    const { clock, options } = services;
    const all = new AbortController();
    void Promise.all(revoking).then(() => all.abort());
    await pause(clock, options.requestTimeoutMs, all.signal);
  }

  async #session({ signal, timeoutMs = OPEN_TIMEOUT_MS }: CheckedWait): Promise<Session> {
    const { services: connection } = stateOf(this);
    const { clock, client, closed, options } = connection;
    const start = clock.monotonic();
    const onTimeout = (): Error =>
      new EtcdUnavailableError(`open a session within ${timeoutMs} ms`, client.lastFailures);
    for (;;) {
      closed.throwIfAborted();
      signal?.throwIfAborted();
      const standing = this.#standing;
      // `open` reads the clocks: after the process was suspended, the session may be over without being marked yet.
      if (standing && leaseOf(standing).open) return standing;
      this.#opening ??= this.#open(options.session);
      const leftMs = Math.max(1, timeoutMs - (clock.monotonic() - start));
      try {
        return await settleWithin(this.#opening, { signal, timeoutMs: leftMs }, connection, { onTimeout });
      } catch (error) {
        // All callers share one opening: a caller that joined a failed one late has time left for the next.
        const over = clock.monotonic() - start >= timeoutMs;
        if (!(error instanceof EtcdUnavailableError) || over) throw error;
      }
    }
  }

  async #open(options: SessionOptions): Promise<Session> {
    const last = this.#standing;
    try {
      this.#standing = await Session.open(this, options);
      if (last && leaseOf(last).unfit) leaseOf(last).retire();
      return this.#standing;
    } finally {
      this.#opening = undefined;
    }
  }
}

/**
 * The cluster behind `hosts`. Opens no connection; the first call does.
 * @throws {TypeError | RangeError} on invalid options; the message names the option, the rule and the value.
 */
export function connect(options: ConnectOptions): Cluster {
  const checked = checkConnect(options);
  const clock = systemClock;
  const client = new EtcdClient(
    checked,
    clock,
    (host, setting) => new Etcd3Member(host, checked, clock, setting),
  );
  return makeCluster(newClusterState(checked, client, clock));
}
