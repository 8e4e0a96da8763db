import { setMaxListeners } from "node:events";
import { stateOf } from "./connection.js";
import type { Cluster } from "./cluster.js";
import { adoptLease, openLease } from "./open-lease.js";
import type { Lease, SessionState } from "./lease.js";
import {
  checkDrain,
  checkOptions,
  checkOwner,
  checkSession,
  checkWait,
  rangeError,
  typeError,
} from "../options/check.js";

export type { SessionState } from "./lease.js";

export interface SessionOptions {
  /**
   * How long etcd keeps the locks of a holder that has died, in whole seconds, 2..86400. A lower value frees them sooner,
   * but tolerates only shorter pauses of the process and shorter outages of etcd.
   * @default 15
   */
  readonly ttlSeconds?: number | undefined;
  /** `inspect` shows it to others. At most 256 bytes. @default "host:pid" */
  readonly owner?: string | undefined;
}

export interface WaitOptions {
  /**
   * An abort rejects at once with the signal's own reason; whatever the call has begun is undone in the background.
   * Ignored once the lock is granted.
   */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds, 1..2147483647. Default: no limit, unless the function says otherwise. */
  readonly timeoutMs?: number | undefined;
}

export interface CloseOptions {
  /**
   * Milliseconds, 0 or more. `close` refuses new calls, keeps renewing until every hold is released or this time has
   * passed, and then revokes the lease. 0 = revoke at once: work that still runs loses its lock.
   * @default 5000
   */
  readonly drainMs?: number | undefined;
}

export interface SessionStateEvent extends Event {
  readonly type: "statechange";
  readonly state: SessionState;
  readonly previous: SessionState;
}

type StateListener = ((event: SessionStateEvent) => void) | { handleEvent(event: SessionStateEvent): void };

class StateEvent extends Event implements SessionStateEvent {
  declare readonly type: "statechange";

  constructor(
    readonly state: SessionState,
    readonly previous: SessionState,
  ) {
    super("statechange");
  }
}

const leases = new WeakMap<Session, Lease>();

/** The lease inside a session. */
export function leaseOf(session: Session): Lease {
  const lease = leases.get(session);
  if (lease === undefined) throw new TypeError("Expected session to be a Session, made by Session.open()");
  return lease;
}

/**
 * A lease that is kept alive: when it is lost, everything locked with it is lost. One session per process is enough for
 * any number of locks. An open session keeps the process alive, as a socket does.
 */
export class Session extends EventTarget implements AsyncDisposable {
  readonly #lease: Lease;

  /** @internal */
  private constructor(lease: Lease) {
    super();
    // Any number of listeners is legitimate.
    setMaxListeners(0, this);
    this.#lease = lease;
    leases.set(this, lease);
    // An error thrown by a listener is an uncaughtException after all listeners ran: the rule of Node's EventTarget.
    lease.onState = (state, previous) => void this.dispatchEvent(new StateEvent(state, previous));
  }

  /**
   * Opens a new session. `timeoutMs` defaults to 10000.
   * On abort: rejects with the signal's reason; a lease that was granted meanwhile is revoked in the background.
   * @throws {TypeError | RangeError} on invalid options.
   * @throws {EtcdUnavailableError} when no member granted a lease in time.
   * @throws {EtcdRefusedError} when etcd rejects the request. @throws {SessionClosedError} when the cluster is closed.
   */
  static async open(cluster: Cluster, options?: SessionOptions & WaitOptions): Promise<Session> {
    const checked = checkSession("Session.open", options, ["signal", "timeoutMs"]);
    const wait = checkWait("Session.open", options, ["ttlSeconds", "owner"]);
    return new Session(await openLease(stateOf(cluster), checked, wait));
  }

  /**
   * Takes over a lease that another session gave up with `orphan()`. The first `lock` on a name takes over its place in
   * the queue, with the same key and fence; places that no call has claimed within one TTL are deleted. Only one live
   * process may use a lease.
   * @throws {SessionLostError} when the lease is gone. @throws {EtcdUnavailableError} when no member answered in time.
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
    return new Session(await adoptLease(state, leaseId, checkOwner(owner), wait));
  }

  get leaseId(): bigint {
    return this.#lease.leaseId;
  }

  /** The TTL that etcd granted, in seconds. */
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

  /** Aborts once, when the session is over, with SessionLostError or SessionClosedError. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /** Milliseconds until the deadline if no further renewal is accepted; 0 when the session is over. */
  remainingMs(): number {
    return this.#lease.remainingMs();
  }

  /**
   * Refuses new calls and rejects waiting ones at once, keeps renewing until every hold is released or `drainMs` has
   * passed, then revokes the lease and ends the remaining holds. Resolves even when etcd is down: the lease then expires
   * by itself. Idempotent.
   * @throws {TypeError | RangeError} on invalid options, and nothing else.
   */
  async close(options?: CloseOptions): Promise<void> {
    await this.#lease.close(checkDrain("close", options));
  }

  /**
   * Returns the lease ID, for `Session.adopt` in another process. Deletes the queue entries of waiting calls, renews once
   * more, then stops renewing without revoking: the keys of holds stay until the TTL ends. Holds end here with
   * LockLostError (`loss: "closed"`). Entries that etcd does not let it delete within one TTL stay, too. A `close()`
   * meanwhile revokes instead.
   * @throws {SessionLostError | SessionClosedError} when the session is over, or is closed meanwhile.
   */
  async orphan(): Promise<bigint> {
    return this.#lease.orphan();
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
