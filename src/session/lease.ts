import type { AdoptedEntries } from "./adopted-entries.js";
import { Closing } from "./closing.js";
import { setMaxListeners } from "node:events";
import { closeIdleWatches, type Connection } from "./connection.js";
import type { Renewal, Standing } from "./deadline.js";
import { inJeopardy, isOver, nextLookMs, remainingMs, standingOf } from "./deadline.js";
import { SessionClosedError, SessionLostError } from "../errors.js";
import type { LeaseListener } from "../etcd/keepalive.js";
import type { CallPolicy } from "../etcd/retry.js";
import { TaskTracker } from "../async/task-tracker.js";
import { revokeLease } from "./revoke.js";
import type { Moment, Timer } from "../async/clock.js";

export type SessionState = "live" | "jeopardy" | "lost" | "closed";
export type SessionEnd = SessionLostError | SessionClosedError;

/** What lives on a lease and ends with it: holds and waits. */
export interface Dependent {
  sessionEnded(reason: SessionEnd): void;
}

/** A key of ours that is in a queue. */
export interface OwnEntry {
  readonly name: string;
  readonly key: string;
  readonly revision: bigint;
}

/** A lease that is kept alive, with its deadline. `Session` is its public face. */
export class Lease implements LeaseListener {
  readonly ttlMs: number;
  readonly holds = new Set<Dependent>();
  readonly waits = new Set<Dependent>();
  /** `orphan()` waits for it. */
  readonly inFlight = new TaskTracker();
  /** Places that it had when it was adopted. */
  adopted: AdoptedEntries | undefined;
  /** etcd refuses every put with it: what it has goes on, and nothing new can be joined. */
  unfit = false;
  /** What it has in queues, as far as etcd has confirmed it. */
  places: () => Iterable<OwnEntry> = () => [];
  /** Tells of a change after everything else has been told. */
  onState: (state: SessionState, previous: SessionState) => void = () => {};
  /** See Renewer. */
  reconnected: () => void = () => {};
  readonly #over = new AbortController();
  #state: SessionState = "live";
  #renewal: Renewal;
  /** A renewal was sent because of the suspend clock's doubt. */
  #doubtAsked = false;
  #lookTimer: Timer | undefined;
  #renewTimer: Timer | undefined;
  readonly #closing = new Closing(this);
  readonly #onRenewed: (() => void)[] = [];

  constructor(
    readonly connection: Connection,
    readonly leaseId: bigint,
    readonly ttlSeconds: number,
    readonly owner: string,
    sent: Moment,
  ) {
    this.ttlMs = ttlSeconds * 1000;
    this.#renewal = { sent, ttlMs: this.ttlMs };
    // Every call in flight listens.
    setMaxListeners(0, this.#over.signal);
    connection.leases.add(this);
    this.#scheduleRenewal(sent);
    this.#scheduleLook();
  }

  get state(): SessionState {
    this.#look();
    return this.#state;
  }

  /** Aborts with SessionLostError or SessionClosedError. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get patienceMs(): number {
    return Math.min(this.ttlMs / 6, 1500);
  }

  /** Reads the clocks itself, so it is right in the first line that runs after a pause of the process. */
  get standing(): Standing {
    const now = this.connection.clock.now();
    this.#look(now);
    return this.#over.signal.aborted ? "over" : standingOf(this.#renewal, now);
  }

  /** The same in short: the end may have come unseen, during a pause of the process. */
  get over(): boolean {
    if (isOver(this.#renewal, this.connection.clock.monotonic())) this.#look();
    return this.#over.signal.aborted;
  }

  remainingMs(): number {
    const now = this.connection.clock.now();
    this.#look(now);
    return this.#over.signal.aborted ? 0 : remainingMs(this.#renewal, now);
  }

  /** Limits for a call of this session: several attempts must fit into the TTL, and none outlives the lease. */
  policy(what: string): CallPolicy {
    return { what, attemptMs: this.ttlMs / 4, signal: this.#over.signal };
  }

  /** New calls may begin. */
  get open(): boolean {
    return !this.over && !this.#closing.begun && !this.unfit;
  }

  /** It is used no more: closed with a later renewal, when nothing is held or waited for. */
  retire(): void {
    this.#onRenewed.push(() => {
      // Its user is closing or orphaning it.
      if (this.#closing.begun) return;
      if (this.holds.size === 0 && this.waits.size === 0) void this.close(0);
      else this.retire();
    });
  }

  /** @throws SessionLostError | SessionClosedError when nothing new may begin. */
  assertOpen(): void {
    if (this.over) throw this.#over.signal.reason as SessionEnd;
    if (this.#closing.begun) throw new SessionClosedError(this.leaseId);
  }

  /** A hold ended; the last one ends a drain. */
  holdEnded(hold: Dependent): void {
    this.holds.delete(hold);
    if (this.holds.size === 0) this.#closing.holdsEnded();
  }

  renewed(sent: Moment, ttlSeconds: number): void {
    this.#look();
    // The accepted renewal with the latest send counts.
    if (this.#over.signal.aborted || sent.monotonic < this.#renewal.sent.monotonic) return;
    this.#renewal = { sent, ttlMs: Math.min(ttlSeconds * 1000, this.ttlMs) };
    for (const told of this.#onRenewed.splice(0)) told();
    this.#look();
  }

  leaseNotFound(): void {
    this.lose("revoked", "etcd has no such lease (revoked, or expired at the server)");
  }

  lose(loss: "expired" | "revoked", why: string): void {
    if (this.#over.signal.aborted) return;
    this.#end("lost", new SessionLostError(this.leaseId, loss, why));
    // A renewal still in a socket may have extended it, and waiters would wait for nobody.
    void revokeLease(this.connection, this.leaseId, this.ttlMs);
  }

  close(drainMs: number): Promise<void> {
    return this.#closing.close(drainMs);
  }

  orphan(): Promise<bigint> {
    return this.#closing.orphan();
  }

  /** Stops without revoking and without renewing once more. */
  abandon(): void {
    if (!this.#over.signal.aborted) this.#end("closed", new SessionClosedError(this.leaseId));
  }

  /** Resolves when etcd has renewed it, rejects when the session is over. */
  renewNow(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.signal.throwIfAborted();
      const stop = this.connection.aborts.add(this.signal, () => reject(this.signal.reason as Error));
      this.#onRenewed.push(() => {
        stop();
        resolve();
      });
      this.connection.keepalive.renew(this);
    });
  }

  /** Rejects what waits; what is held goes on. */
  endWaits(reason: SessionEnd): void {
    this.#endAll(this.waits, reason);
  }

  #end(state: "lost" | "closed", reason: SessionEnd): void {
    const previous = this.#state;
    this.#state = state;
    this.#lookTimer?.cancel();
    this.#renewTimer?.cancel();
    this.connection.keepalive.detach(this);
    this.connection.leases.delete(this);
    this.#over.abort(reason);
    this.#endAll(this.holds, reason);
    this.endWaits(reason);
    closeIdleWatches(this.connection);
    this.onState(state, previous);
  }

  #endAll(dependents: Set<Dependent>, reason: SessionEnd): void {
    for (const dependent of [...dependents]) dependent.sessionEnded(reason);
  }

  /** Brings the state up to the clocks. */
  #look(now = this.connection.clock.now()): void {
    if (this.#over.signal.aborted) return;
    const standing = standingOf(this.#renewal, now);
    if (standing === "over") {
      const seconds = (this.#renewal.ttlMs * 0.9) / 1000;
      return this.lose("expired", `no renewal was accepted for ${seconds} s (TTL ${this.ttlSeconds} s)`);
    }
    // After a suspend the scheduled renewal may be far away.
    if (standing === "doubtful" && !this.#doubtAsked) this.connection.keepalive.renew(this);
    this.#doubtAsked = standing === "doubtful";
    const [previous, next] = [this.#state, inJeopardy(this.#renewal, now) ? "jeopardy" : "live"] as const;
    if (next === previous) return;
    this.#state = next;
    this.onState(next, previous);
  }

  #scheduleLook(now = this.connection.clock.now()): void {
    this.#lookTimer = this.connection.clock.after(nextLookMs(this.#renewal, now), () => {
      // One moment for both: between two readings of the clock the boundary could pass unseen.
      const then = this.connection.clock.now();
      this.#look(then);
      if (!this.#over.signal.aborted) this.#scheduleLook(then);
    });
  }

  /** Counted from the last send: a grant that was answered late leaves less time for the first renewal. */
  #scheduleRenewal(sent: Moment): void {
    const dueMs = sent.monotonic + this.ttlMs / 3 - this.connection.clock.monotonic();
    this.#renewTimer = this.connection.clock.after(Math.max(0, dueMs), () => {
      this.connection.keepalive.renew(this);
      this.#scheduleRenewal(this.connection.clock.now());
    });
  }
}
