import { setMaxListeners } from "node:events";
import { connectionOf, type Connection } from "./connection.js";
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
   * How long etcd keeps the locks of a holder that has died, in whole seconds, 2..86400. Lower frees them sooner, but
   * tolerates shorter pauses of the process and shorter outages of etcd.
   * @default 15
   */
  readonly ttlSeconds?: number | undefined;
  /** Shown to others by `inspect`. At most 256 bytes. @default "host:pid" */
  readonly owner?: string | undefined;
}

export interface WaitOptions {
  /** Aborting rejects at once with the signal's own reason; what was begun is undone in the background. Ignored once the lock is granted. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds, 1..2147483647. Default: no limit, unless the function says otherwise. */
  readonly timeoutMs?: number | undefined;
}

export interface CloseOptions {
  /**
   * Milliseconds, 0 or more: refuse what is new, go on renewing until every hold is released or this time has passed,
   * then revoke. 0 = revoke at once: work still running loses its lock.
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

/** What a session is inside. */
export function leaseOf(session: Session): Lease {
  const lease = leases.get(session);
  if (lease === undefined) throw new TypeError("Expected session to be a Session, made by Session.open()");
  return lease;
}

/**
 * A lease that is kept alive: everything locked with it is lost when it is lost. One per process is enough for any
 * number of locks. An open session keeps the process alive, as a socket does.
 */
export class Session extends EventTarget implements AsyncDisposable {
  readonly #lease: Lease;

  /** @internal */
  private constructor(lease: Lease) {
    super();
    // However much of a program listens to one session, that is no leak.
    setMaxListeners(0, this);
    this.#lease = lease;
    leases.set(this, lease);
    // A listener that throws is an uncaughtException, after all listeners ran: that is EventTarget's own rule in Node.
    lease.onState = (state, previous) => void this.dispatchEvent(new StateEvent(state, previous));
  }

  /**
   * A new session. `timeoutMs` is 10000 here when it is not given.
   * On abort: rejects with the signal's reason; a lease that was granted meanwhile is revoked in the background.
   * @throws {TypeError | RangeError} on bad options. @throws {EtcdUnavailableError} when no member granted in time.
   * @throws {EtcdRefusedError} when etcd said no. @throws {SessionClosedError} when the cluster is closed.
   */
  static async open(cluster: Cluster, options?: SessionOptions & WaitOptions): Promise<Session> {
    const checked = checkSession("Session.open", options, ["signal", "timeoutMs"]);
    const wait = checkWait("Session.open", options, ["ttlSeconds", "owner"]);
    return new Session(await openLease(connectionOf(cluster), checked, wait));
  }

  /**
   * Goes on with a lease that another session gave up by `orphan()`. The first `lock` on a name takes over its place,
   * with the same key and fence; places that nobody has claimed within one TTL are deleted. One live process per lease.
   * @throws {SessionLostError} when the lease is gone. @throws {EtcdUnavailableError} when no member answered in time.
   */
  static async adopt(
    cluster: Cluster,
    leaseId: bigint,
    options?: Pick<SessionOptions, "owner"> & WaitOptions,
  ): Promise<Session> {
    const connection: Connection = connectionOf(cluster);
    if (typeof leaseId !== "bigint") throw typeError("leaseId", "a bigint", leaseId);
    if (leaseId <= 0n || leaseId >= 1n << 63n)
      throw rangeError("leaseId", "from 1n to 2n ** 63n - 1n", leaseId);
    const { owner } = checkOptions("Session.adopt", options, ["owner", "signal", "timeoutMs"]);
    const wait = checkWait("Session.adopt", options, ["owner"]);
    return new Session(await adoptLease(connection, leaseId, checkOwner(owner), wait));
  }

  get leaseId(): bigint {
    return this.#lease.leaseId;
  }

  /** What etcd granted, in seconds. */
  get ttlSeconds(): number {
    return this.#lease.ttlSeconds;
  }

  get owner(): string {
    return this.#lease.owner;
  }

  /** `jeopardy`: a renewal is overdue (half of the TTL has passed); what is held is still held. */
  get state(): SessionState {
    return this.#lease.state;
  }

  /** Aborts once, when the session is over: with SessionLostError or SessionClosedError. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /** Milliseconds until the deadline if no further renewal is accepted; 0 when the session is over. */
  remainingMs(): number {
    return this.#lease.remainingMs();
  }

  /**
   * Refuses new calls and rejects waiting ones at once, goes on renewing until every hold is released or `drainMs` has
   * passed, then revokes the lease and ends the holds still open. Resolves also when etcd is down: the lease expires
   * by itself. Idempotent. @throws {TypeError | RangeError} on bad options, and nothing else.
   */
  async close(options?: CloseOptions): Promise<void> {
    await this.#lease.close(checkDrain("close", options));
  }

  /**
   * The lease ID, for `Session.adopt` in another process. Leaves the waiting places, renews once more, then stops
   * renewing without revoking: keys of holds stay until the TTL. Holds end here with LockLostError (`loss: "closed"`).
   * What etcd does not let it delete within one TTL stays, too. `close()` meanwhile revokes instead.
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
