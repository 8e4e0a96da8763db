import { EtcdRefusedError } from "../errors.js";
import type { Clock, Moment, Timer } from "../base/util/clock.js";
import type { EtcdClient } from "./client.js";
import { DirectHosts } from "./direct-hosts.js";
import {
  type CallOptions,
  type KeepaliveStream,
  type LeaseAnswer,
  type Member,
  TokenExpiredError,
  UnansweredError,
} from "./port.js";
import { Backoff } from "./retry.js";

/** A lease that is kept alive. */
export interface LeaseListener {
  readonly leaseId: bigint;
  /** How long a renewal may stay unanswered before the stream is considered dead. */
  readonly patienceMs: number;
  /** A lease that must outlive it: wherever both are renewed, this one is first on the stream. */
  readonly delay?: DelayListener | undefined;
  /** Whether this is such a lease. */
  readonly isEarly?: boolean;
  /** etcd extended the lease; it received the renewal after `sent`. `answeredAt`, on the monotonic clock, if that was not now. */
  renewed(sent: Moment, ttlSeconds: number, answeredAt?: number): void;
  /** etcd has no such lease. */
  leaseNotFound(): void;
  /** etcd does not renew it. It is tried again with the next `renew`. */
  refused?(error: EtcdRefusedError): void;
  /** Renewals use another stream from now on, or a first one after a failure: etcd may have been restored from a snapshot. */
  reconnected?(): void;
}

/** A lease that outlives another one, with which it is renewed until it is gone. */
export interface DelayListener extends LeaseListener {
  readonly isGone: boolean;
}

/** A lease that is renewed from its grant to its end. */
export interface KeptLease extends LeaseListener {
  readonly ttlMs: number;
  /** For a worker thread: see `ConnectOptions`. */
  readonly maxStallMs?: number | undefined;
  /** Calls `renew`, with the time then, at `at` on the monotonic clock. */
  renewAt(at: number, renew: (now: Moment) => void): void;
}

/** What has become of a lease, as the thread that renews it has written: no message has to be read for it. */
export interface Renewed {
  /** etcd has no such lease. */
  readonly gone: boolean;
  /** The accepted renewal with the latest send. */
  readonly last: { readonly sent: Moment; readonly ttlMs: number };
  /** Why that thread does not renew, since its last renewal. */
  readonly failure: string | undefined;
  /** Reads the messages of that thread, at once. */
  hear(): void;
}

/** What keeps the leases of a cluster alive: this thread, or a worker thread. */
export interface Keeper {
  /** Rejects if renewals through this member would not reach etcd, or if that cannot be determined. */
  assertDirect(member: Member, options: CallOptions): Promise<void>;
  /**
   * Renews a lease every third of its TTL until `detach`; it was granted or renewed at `sent`. Returns what another thread writes about
   * it; undefined if this thread renews.
   */
  keep(lease: KeptLease, sent: Moment): Renewed | undefined;
  /** Sends a renewal now; the answer, if one arrives, goes to `listener`. That of its delay lease is sent before it. */
  renew(listener: LeaseListener, now?: Moment): void;
  /** Without its delay lease. */
  detach(listener: Pick<LeaseListener, "leaseId">): void;
  close(): void;
}

/** Leases that are due within this part of a TTL are renewed together. */
const ROUND_PART = 1 / 30;

/** A renewal that was sent and has no answer yet. */
interface Unanswered {
  readonly leaseId: bigint;
  readonly sent: Moment;
  readonly awaitedUntil: number;
}

interface OpenStream {
  readonly member: Member;
  readonly stream: KeepaliveStream;
  /**
   * In the order of their sends, which is the order of the answers; also those of detached leases. An answer must not be matched
   * to a renewal that was sent on another stream.
   */
  readonly unanswered: Unanswered[];
  /** Checks at `checkedAt` whether one of them has been awaited for too long. */
  timer: Timer | undefined;
  checkedAt: number;
}

const unanswered = ({ holdUp }: KeepaliveStream): UnansweredError =>
  holdUp === undefined
    ? new UnansweredError("no answer to the renewal of a lease")
    : new UnansweredError(`the renewal of a lease was not sent: ${holdUp}`, { inDoubt: false });

/** One keepalive stream for all leases of a cluster. */
export class Keepalive implements Keeper {
  readonly #listeners = new Map<bigint, LeaseListener>();
  readonly #over = new AbortController();
  readonly #hosts: DirectHosts;
  #open: OpenStream | undefined;
  readonly #retry: Backoff;
  #reopening: Timer | undefined;
  #checkingTerm = false;
  /** When the first renewal of the cluster was due. */
  #firstRound: number | undefined;
  /** Since then, a restored etcd may answer, also before the first stream of a lease. */
  #memberFailed = false;

  constructor(
    private readonly client: EtcdClient,
    private readonly clock: Clock,
  ) {
    this.#retry = new Backoff(clock);
    this.#hosts = new DirectHosts(clock);
    client.pool.listen({
      failed: (member) => this.#failed(member),
      suspected: (member) => this.#open?.member === member && this.#renewAll(),
    });
  }

  assertDirect(member: Member, options: CallOptions): Promise<void> {
    return this.#hosts.assertDirect(member, options);
  }

  /** Counted from the last send: after a grant that was answered late, the first renewal is due sooner. */
  keep(lease: KeptLease, sent: Moment): undefined {
    lease.renewAt(this.#roundBefore(sent.monotonic + lease.ttlMs / 3, lease.ttlMs), (now) => {
      this.renew(lease, now);
      this.keep(lease, now);
    });
  }

  /**
   * When to renew a lease that is due at `at`: then, or up to a thirtieth of its TTL earlier, in one write with others. The first
   * lease sets the phase, so processes that start one after the other do not renew at the same time.
   */
  #roundBefore(at: number, ttlMs: number): number {
    const first = (this.#firstRound ??= at);
    // Whole milliseconds: ten rounds are no more than a third of the TTL, however that is rounded.
    const roundMs = Math.max(1, Math.floor(ttlMs * ROUND_PART));
    return first + Math.floor((at - first) / roundMs) * roundMs;
  }

  renew(listener: LeaseListener, now = this.clock.now()): void {
    const { delay } = listener;
    if (delay && !delay.isGone) this.#renew(delay, now);
    this.#renew(listener, now);
  }

  #renew(listener: LeaseListener, now: Moment): void {
    this.#listeners.set(listener.leaseId, listener);
    // Opening a stream renews every attached lease.
    if (this.#open) this.#send(this.#open, listener, now);
    else if (this.#reopening) return;
    else if (this.#memberFailed) this.#reopen();
    else this.#openStream();
  }

  detach({ leaseId }: Pick<LeaseListener, "leaseId">): void {
    this.#listeners.delete(leaseId);
    if (this.#listeners.size === 0) this.#closeStream();
  }

  close(): void {
    this.#over.abort();
    this.#hosts.close();
    this.#listeners.clear();
    this.#closeStream();
  }

  #closeStream(): void {
    this.#reopening?.cancel();
    this.#reopening = undefined;
    const open = this.#open;
    this.#open = undefined;
    open?.stream.close();
    open?.timer?.cancel();
  }

  #reopen(): void {
    this.#reopening = undefined;
    if (this.#listeners.size === 0 || !this.#openStream()) return;
    for (const listener of this.#listeners.values()) listener.reconnected?.();
  }

  /** Renews every attached lease on a new stream. Returns false if a token has to be requested first. */
  #openStream(): boolean {
    if (this.client.tokenMissing) {
      this.#reopenWithToken();
      return false;
    }
    const { current: member } = this.client.pool;
    const stream = this.#hosts.keepalive(member, {
      answer: (answer) => open === this.#open && this.#answered(open, answer),
      ended: (error) => open === this.#open && this.#ended(open, error),
    });
    const open: OpenStream = { member, stream, unanswered: [], timer: undefined, checkedAt: Infinity };
    this.#open = open;
    this.#renewAll();
    return true;
  }

  /** etcd 3.6 checks the token of this stream, too; older versions check only those of calls and new watches. */
  #ended(open: OpenStream, error: Error): void {
    const refusal = error instanceof EtcdRefusedError && error.reason === "permission" ? error : undefined;
    const [refused] = open.unanswered;
    if (refusal && refused) return this.#reopenWithout(refused.leaseId, refusal);
    if (!(error instanceof TokenExpiredError)) return this.client.pool.fail(open.member, error);
    this.#closeStream();
    if (this.#listeners.size > 0) this.#reopenWithToken();
  }

  /**
   * etcd 3.6 does not renew a lease with a key that the user may not write: it ends the stream, on which it answers renewals
   * one after the other. The other leases continue; this one is tried again when its next renewal is due.
   */
  #reopenWithout(leaseId: bigint, refusal: EtcdRefusedError): void {
    // None if it was detached since.
    const listener = this.#listeners.get(leaseId);
    this.#listeners.delete(leaseId);
    this.#closeStream();
    this.#reopen();
    listener?.refused?.(refusal.during("renew a lease"));
  }

  /** The token is requested after the pause, which grows: etcd may reject a token that is only a little older. */
  #reopenWithToken(): void {
    this.#reopening = this.clock.after(this.#retry.nextMs(), () => {
      const held: Timer = { cancel: () => undefined };
      this.#reopening = held;
      const reopen = (): void => void (this.#reopening === held && this.#reopen());
      // A rejected or unanswered request leaves no token, so it is repeated after the next pause.
      void this.client.freshToken(this.#over.signal).then(reopen, (error: unknown) => {
        if (this.#reopening === held && error instanceof EtcdRefusedError) this.#refused(error);
        reopen();
      });
    });
  }

  /** No lease is renewed: etcd accepts the user no more. */
  #refused(refusal: EtcdRefusedError): void {
    const error = refusal.during("renew a lease");
    for (const listener of [...this.#listeners.values()]) listener.refused?.(error);
  }

  #failed(member: Member): void {
    this.#memberFailed = true;
    if (this.#open?.member === member) this.#move(this.#open);
  }

  /** Moves to a stream on the next member: immediately, unless the previous stream was never answered either. */
  #move(open: OpenStream): void {
    if (open !== this.#open) return;
    this.#closeStream();
    if (this.#listeners.size > 0) this.#reopenLater();
  }

  #reopenLater(): void {
    this.#reopening = this.clock.after(this.#retry.nextMs(), () => this.#reopen());
  }

  #renewAll(): void {
    const now = this.clock.now();
    const all = [...this.#listeners.values()];
    const inOrder = [...all.filter(({ isEarly }) => isEarly), ...all.filter(({ isEarly }) => !isEarly)];
    for (const listener of inOrder) if (this.#open) this.#send(this.#open, listener, now);
  }

  /** `sent` is before the write: etcd's TTL starts when it receives the renewal, so the client's deadline comes first. */
  #send(open: OpenStream, { leaseId, patienceMs }: LeaseListener, sent: Moment): void {
    const awaitedUntil = sent.monotonic + patienceMs;
    open.unanswered.push({ leaseId, sent, awaitedUntil });
    open.stream.renew(leaseId);
    if (awaitedUntil < open.checkedAt) this.#checkAt(open, awaitedUntil);
  }

  #checkAt(open: OpenStream, at: number): void {
    open.timer?.cancel();
    open.checkedAt = at;
    open.timer = this.clock.after(Math.max(0, at - this.clock.monotonic()), () => {
      // After this process was paused, the answer may still be in the socket: timers run before it is read.
      open.timer = this.clock.afterPendingEvents(() => {
        if (open === this.#open) this.#check(open);
      });
    });
  }

  #check(open: OpenStream): void {
    const awaited = open.unanswered.filter(({ leaseId }) => this.#listeners.has(leaseId));
    const next = awaited.reduce((first, { awaitedUntil }) => Math.min(first, awaitedUntil), Infinity);
    open.checkedAt = Infinity;
    if (next <= this.clock.monotonic()) this.client.pool.fail(open.member, unanswered(open.stream));
    else if (next < Infinity) this.#checkAt(open, next);
  }

  #answered(open: OpenStream, { header, leaseId, ttlSeconds }: LeaseAnswer): void {
    const at = open.unanswered.findIndex((each) => each.leaseId === leaseId);
    const [renewal] = at < 0 ? [] : open.unanswered.splice(at, 1);
    if (open.unanswered.length === 0) {
      open.timer?.cancel();
      open.checkedAt = Infinity;
    }
    const listener = this.#listeners.get(leaseId);
    if (!renewal || !listener) return;
    this.#retry.reset();
    if (!this.client.pool.accepts(open.member, header)) return;
    if (header.raftTerm < this.client.floor.term) return this.#deposed(open);
    if (ttlSeconds <= 0) return listener.leaseNotFound();
    listener.renewed(renewal.sent, ttlSeconds);
  }

  /**
   * The answer came from a leader of an older raft term: before etcd 3.4.31 and 3.5.13, a stalled ex-leader keeps renewing
   * leases that the new leader has expired (etcd#15247). The answer does not count, and a quorum read gets the current term.
   */
  #deposed(open: OpenStream): void {
    if (this.#checkingTerm) return;
    this.#checkingTerm = true;
    this.client.pool.fail(open.member, new UnansweredError("renewals were answered in an older raft term"));
    void this.client
      .renewRaftTermFloor(this.#over.signal)
      // If the read is rejected, the floor stays and the leases reach their deadlines, which is the safe outcome.
      .catch(() => undefined)
      .then(() => {
        this.#checkingTerm = false;
        this.#renewAll();
      });
  }
}
