import { EtcdUnavailableError, type RenewalReport, SessionClosedError } from "../../errors.js";
import {
  checkDrain,
  type CheckedWait,
  checkOptions,
  checkOwner,
  checkSession,
  checkWait,
  rangeError,
  SESSION_OPTIONS,
  typeError,
} from "../../base/options/check.js";
import {
  type ClusterInside,
  INSPECT,
  type InspectArguments,
  inspected,
  ReportingCluster,
  sessionOf,
} from "../../base/telemetry/inspect.js";
import { atCaller, inOwnContext, withCallersStack } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { type ClusterState, disconnect, type EtcdServices } from "./connection.js";
import type { Lease, SessionState } from "./lease.js";
import { adoptLease, openLease } from "./open-lease.js";
import type { CloseOptions, SessionOptions, WaitOptions } from "./session-options.js";
import { allowListeners } from "../../base/util/abort.js";

/**
 * A Cluster stands for its standing session, so the object outlives a lost session; a call that finds it lost before the
 * call has joined a queue uses the next session. A Session stands for itself only.
 */
export type SessionSource = Cluster | Session;

/** Where a lock takes its lease from. */
export interface LeaseSource {
  readonly services: EtcdServices;
  /** `lease` gives another lease after the session of one has ended. */
  readonly reopens: boolean;
  /**
   * At once while a session stands: hardly any call has to wait for one, and each promise costs the path to the lock.
   * @throws SessionLostError | SessionClosedError | EtcdUnavailableError | EtcdRefusedError, or rejects with one
   */
  lease(wait: CheckedWait): Lease | Promise<Lease>;
  /** The lease of a session that stands and accepts calls, if the source can tell without waiting. */
  standing?(): Lease | undefined;
}

let sourceOf: (cluster: Cluster) => LeaseSource | undefined;

/** The same object for all locks of one session or cluster: a program may create a lock for each call. @throws TypeError */
export function leaseSourceOf(source: unknown): LeaseSource {
  if (source instanceof Session) return leaseOf(source).source;
  const leases = source instanceof Cluster ? sourceOf(source) : undefined;
  if (leases === undefined) throw typeError("source", "a Cluster or a Session", source);
  return leases;
}

/** The event `statechange`, with what the session knew about its renewals at that moment. */
export interface SessionStateEvent extends Event, RenewalReport {
  readonly type: "statechange";
  readonly state: SessionState;
  readonly previous: SessionState;
}

type StateListener = ((event: SessionStateEvent) => void) | { handleEvent(event: SessionStateEvent): void };

class StateEvent extends Event implements SessionStateEvent {
  declare readonly type: "statechange";
  readonly remainingMs: number;
  readonly sinceLastRenewalMs: number;
  readonly stalledMs: number;
  readonly members: ReadonlyMap<string, Error>;

  constructor(
    readonly state: SessionState,
    readonly previous: SessionState,
    report: RenewalReport,
  ) {
    super("statechange");
    this.remainingMs = report.remainingMs;
    this.sinceLastRenewalMs = report.sinceLastRenewalMs;
    this.stalledMs = report.stalledMs;
    this.members = report.members;
  }
}

const OPEN_TIMEOUT_MS = 10_000;

/** For `connect`. */
export let newCluster: (state: ClusterState) => Cluster;
let stateOf: (cluster: object) => ClusterState;

/** The services of a cluster, for the rest of the library: a cluster is opaque to its users. */
export const servicesOf = (cluster: object): EtcdServices => stateOf(cluster).services;

/** The members of one etcd cluster, and the session that all objects created with it share. Created by `connect`. */
export class Cluster extends ReportingCluster implements AsyncDisposable {
  readonly hosts: readonly string[];
  readonly #state: ClusterState;
  readonly #source: LeaseSource;
  #standing: Session | undefined;
  #opening: Promise<Session> | undefined;

  static {
    newCluster = (state) => new Cluster(state);
    stateOf = (cluster) => {
      const isObject = typeof cluster === "object" && (cluster as object | null) !== null;
      if (isObject && #state in cluster) return cluster.#state;
      throw typeError("cluster", "a Cluster, made by connect()", cluster);
    };
    // A Proxy of a cluster is an instance, too, but has no fields of its own.
    sourceOf = (cluster) => (#source in cluster ? cluster.#source : undefined);
  }

  private constructor(state: ClusterState) {
    super(() => this.#inside());
    this.hosts = state.services.options.hosts;
    this.#state = state;
    this.#source = {
      services: state.services,
      reopens: true,
      lease: (wait) => this.#openLease(wait.signal) ?? this.#session(wait).then(leaseOf),
      standing: () => this.#openLease(undefined),
    };
  }

  /**
   * The cluster's standing session. Opened on first use, and again after the session is lost or its `close()` was called,
   * even while it drains. `timeoutMs` defaults to 10000. Opening it takes a round trip, besides TCP and TLS, and one more with a password or
   * the transport "etcd3".
   *
   * If no host has ever answered, and all reject connections or have no address, a call that needs the first session rejects with
   * EtcdUnavailableError after about 3 s. Calls with `timeoutMs` or `rejoin`, `lead` and `observe` go on, and so do all calls if a host is
   * silent or has answered before. Missing SRV records count as hosts without an address.
   *
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
    const state = this.#state;
    state.closing.abort(new SessionClosedError(0n));
    const close = (): Promise<unknown> => Promise.all([...state.leases].map((lease) => lease.close(drainMs)));
    // Before anything is awaited: a call made right after this one is refused.
    const closing = close();
    await this.#opening?.catch(() => undefined);
    // A listener of a loss may have called this while the lease was between the open ones and those that are being revoked.
    await Promise.all([closing, close()]);
    await disconnect(state);
  }

  /** Same as `close()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #inside(): ClusterInside {
    const { services, leases, guardian } = this.#state;
    const { client, closed } = services;
    const reported = { contact: client.hosts, standing: this.#standing, guardian: guardian?.health };
    return { ...reported, closed: closed.aborted, leases };
  }

  /** The lease of the standing session, if it accepts calls. */
  #openLease(signal: AbortSignal | undefined): Lease | undefined {
    this.#state.services.closed.throwIfAborted();
    signal?.throwIfAborted();
    const lease = this.#standing && leaseOf(this.#standing);
    // `open` reads the clocks: after the process was suspended, the session may be over without being marked yet.
    return lease?.open ? lease : undefined;
  }

  async #session({ signal, timeoutMs: given }: CheckedWait): Promise<Session> {
    const { services } = this.#state;
    const { clock, client, options } = services;
    const timeoutMs = given ?? OPEN_TIMEOUT_MS;
    const start = clock.monotonic();
    const onTimeout = (): Error =>
      new EtcdUnavailableError(
        `open a session within ${timeoutMs} ms`,
        client.hosts.whyUnanswered(timeoutMs),
      );
    for (;;) {
      if (this.#openLease(signal)) return this.#standing as Session;
      this.#opening ??= inOwnContext(() => this.#open(options.session));
      const leftMs = Math.max(1, timeoutMs - (clock.monotonic() - start));
      try {
        return await settleWithin(this.#opening, { signal, timeoutMs: leftMs }, services, { onTimeout });
      } catch (error) {
        // All callers share one opening: a caller that joined a failed one late has time left for the next.
        const over =
          clock.monotonic() - start >= timeoutMs || (given === undefined && client.hosts.unreachable);
        if (!(error instanceof EtcdUnavailableError) || over) throw withCallersStack(error);
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

/** The lease inside a session. @throws TypeError */
export let leaseOf: (session: Session) => Lease;

/**
 * A lease that is kept alive: when it is lost, everything locked with it is lost. One session per process is enough for
 * any number of locks. An open session keeps the process alive, as a socket does.
 */
export class Session extends EventTarget implements AsyncDisposable {
  readonly #lease: Lease;

  static {
    leaseOf = (session) => {
      if (#lease in session) return session.#lease;
      throw typeError("session", "a Session, made by Session.open()", session);
    };
  }

  private constructor(lease: Lease) {
    super();
    // Any number of listeners is legitimate.
    allowListeners(this);
    this.#lease = lease;
    // An error thrown by a listener is an uncaughtException after all listeners ran: the rule of Node's EventTarget.
    lease.onState = (...change) => void this.dispatchEvent(new StateEvent(...change));
  }

  /**
   * Opens a new session. `timeoutMs` defaults to 10000.
   * On abort: rejects with the signal's reason; a lease that was granted meanwhile is revoked in the background.
   * @throws {TypeError | RangeError} on invalid options.
   * @throws {EtcdUnavailableError} when no member granted a lease in time.
   * @throws {EtcdRefusedError} when etcd rejects the request. @throws {SessionClosedError} when the cluster is closed.
   */
  static async open(cluster: Cluster, options?: SessionOptions & WaitOptions): Promise<Session> {
    const checked = checkSession("Session.open", options, { also: ["signal", "timeoutMs"] });
    const wait = checkWait("Session.open", options, SESSION_OPTIONS);
    return new Session(await atCaller(openLease(stateOf(cluster), checked, wait)));
  }

  /**
   * Takes over a lease that another session gave up with `orphan()`. The first `lock` on a name takes over its place in
   * the queue, with the same key and fence; a call of another kind is rejected with a KindMismatchError, and the entry remains for one of
   * its own kind. Entries that no call has claimed within one TTL are deleted. Only one live process may use a lease.
   * @throws {SessionLostError} when the lease is gone. @throws {EtcdUnavailableError} when no member answered in time.
   * @throws {EtcdRefusedError} when etcd does not renew it: from 3.6 on, if it has a key that the user may not write.
   */
  static async adopt(
    cluster: Cluster,
    leaseId: bigint,
    options?: Pick<SessionOptions, "owner"> & WaitOptions,
  ): Promise<Session> {
    const state = stateOf(cluster);
    if (typeof leaseId !== "bigint") throw typeError("leaseId", "a bigint", leaseId);
    if (leaseId <= 0n || leaseId >= 1n << 63n)
      throw rangeError("leaseId", "from 1n to 2n ** 63n - 1n", leaseId);
    const { owner } = checkOptions("Session.adopt", options, ["owner", "signal", "timeoutMs"]);
    const wait = checkWait("Session.adopt", options, ["owner"]);
    return new Session(await atCaller(adoptLease(state, { leaseId, owner: checkOwner(owner) }, wait)));
  }

  get leaseId(): bigint {
    return this.#lease.leaseId;
  }

  /** The TTL that etcd granted, in seconds: this one counts, even if it is longer than `ttlSeconds` of the options. */
  get ttlSeconds(): number {
    return this.#lease.ttlSeconds;
  }

  get owner(): string {
    return this.#lease.owner;
  }

  /** `jeopardy`: a renewal is overdue (half of the TTL has passed); all locks are still held. */
  get state(): SessionState {
    return this.#lease.state;
  }

  /**
   * Aborts once, when the session is over, with SessionLostError or SessionClosedError. Reading it compares the deadline with the
   * clocks, as `remainingMs()` does: after a pause of the process it's aborted before any timer has fired.
   */
  get signal(): AbortSignal {
    this.#lease.refresh();
    return this.#lease.signal;
  }

  /** Milliseconds until the deadline if no further renewal is accepted; 0 when the session is over. */
  remainingMs(): number {
    return this.#lease.remainingMs();
  }

  /**
   * Refuses new calls and rejects waiting ones at once, keeps renewing until every hold is released or `drainMs` has
   * passed, then revokes the lease and ends the remaining holds. Resolves even when etcd is down: the lease then expires
   * by itself. etcd does not revoke a lease with a key that the user may not write: the other keys are deleted, and the rest expires.
   * Idempotent.
   * @throws {TypeError | RangeError} on invalid options, and nothing else.
   */
  async close(options?: CloseOptions): Promise<void> {
    await this.#lease.close(checkDrain("close", options));
  }

  /**
   * Returns the lease ID, for `Session.adopt` in another process. Deletes the queue entries of waiting calls, renews once
   * more, then stops renewing without revoking: the keys of holds remain until the TTL ends. Holds end here with
   * LockLostError (`loss: "closed"`). Entries that etcd does not let it delete within one TTL remain, too. A `close()`
   * meanwhile revokes instead. With `guardian: true`, it waits until the guardian has forgotten the lease; one that does
   * not answer within 2 s is killed.
   * @throws {EtcdRefusedError} when etcd does not renew the lease; the session continues.
   * @throws {SessionLostError | SessionClosedError} when the session is over, or is closed meanwhile.
   */
  async orphan(): Promise<bigint> {
    return this.#lease.orphan();
  }

  /** The session's lease, owner, state and remaining time. Bigints become decimal strings. */
  toJSON(): Readonly<Record<string, unknown>> {
    const { leaseId, remainingMs, ...rest } = sessionOf(this);
    return { leaseId: leaseId.toString(), ...rest, remainingMs: Math.floor(remainingMs) };
  }

  /** @internal */
  [INSPECT](...how: InspectArguments): string {
    return inspected("Session", () => sessionOf(this), how);
  }

  override addEventListener(
    type: "statechange",
    listener: StateListener | null,
    options?: boolean | { once?: boolean; signal?: AbortSignal },
  ): void {
    super.addEventListener(type, listener as Parameters<EventTarget["addEventListener"]>[1], options);
  }

  override removeEventListener(type: "statechange", listener: StateListener | null, options?: boolean): void {
    super.removeEventListener(type, listener as Parameters<EventTarget["removeEventListener"]>[1], options);
  }

  /** Same as `close()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
