import { EtcdRefusedError } from "../errors.js";
import { AbortFanOut } from "../util/abort.js";
import type { Clock, Moment, Timer } from "../util/clock.js";
import { inOwnContext } from "../util/own-context.js";
import type { EtcdClient } from "./client.js";
import {
  type CallOptions,
  gaveUp,
  type KeepaliveStream,
  type LeaseAnswer,
  type Member,
  MemberRefusedError,
  type StreamHandlers,
  TokenExpiredError,
  UnansweredError,
} from "./port.js";
import { Backoff } from "./retry.js";

/** To etcd this ID means "no lease", so no lease has it. */
const NO_LEASE = 0n;

const PROXY =
  "this is an `etcd grpc-proxy`, which answers renewals by itself: no deadline holds behind it; " +
  "connect to the members of etcd instead";

/** Any other end of a stream does not show what the host is, or that there is none. */
const isKnown = (error: Error): boolean =>
  error instanceof MemberRefusedError ||
  error instanceof TokenExpiredError ||
  (error instanceof UnansweredError && (error.kind === "turned away" || error.kind === "unreachable"));

const refusal = (host: string): MemberRefusedError => new MemberRefusedError("member", PROXY, { host });

/**
 * Distinguishes etcd from an `etcd grpc-proxy`. The proxy renews leases on its own schedule and repeats etcd's latest answer
 * to its clients: such an answer does not show that etcd extended the lease after this client sent its renewal. A renewal
 * of "no lease" tells them apart: etcd answers it with TTL 0, before it answers any later renewal; the proxy answers it
 * with TTL -1, in any order (3.4 to 3.7). Each stream is probed, by its first renewal: the next connection to the same host
 * may reach another server. A lease is granted on connections that have passed.
 */
class DirectHosts {
  readonly #known = new WeakSet<Member>();
  /** Probes in progress: sessions that open at the same time share one. */
  readonly #probes = new Map<Member, Promise<void>>();
  readonly #ends = new Set<(error: Error) => void>();
  readonly #aborts = new AbortFanOut();

  constructor(private readonly clock: Clock) {}

  /**
   * The stream ends with MemberRefusedError if the host is a proxy; no answer of a proxy is passed on. Renewals need not wait
   * for the answer to the probe: they travel with it, and their answers come after it.
   */
  keepalive(member: Member, handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const stream = this.#open(member, handlers);
    stream.renew(NO_LEASE);
    return stream;
  }

  /** @throws MemberRefusedError if the host is a proxy. @throws UnansweredError if the host does not answer in time. */
  async assertDirect(member: Member, { timeoutMs, signal }: CallOptions): Promise<void> {
    if (this.#known.has(member)) return;
    const probe = this.#probes.get(member) ?? inOwnContext(() => this.#probe(member, timeoutMs));
    // Other calls wait for the same answer: a caller that gives up does not end the probe.
    await new Promise<void>((resolve, reject) => {
      const onAbort = (): void => reject(gaveUp(false));
      const stop = this.#aborts.add(signal, onAbort);
      if (signal?.aborted) onAbort();
      void probe.finally(stop).then(resolve, reject);
    });
  }

  /** Ends every probe. */
  close(): void {
    for (const end of [...this.#ends]) end(new UnansweredError("the cluster is closed", { inDoubt: false }));
  }

  #probe(member: Member, timeoutMs: number): Promise<void> {
    const probe = new Promise<void>((resolve, reject) => {
      const end = (error?: Error): void => {
        timer.cancel();
        stream.close();
        this.#ends.delete(end);
        this.#probes.delete(member);
        if (error === undefined) resolve();
        else reject(isKnown(error) ? error : new UnansweredError(error.message, { inDoubt: false }));
      };
      const timer = this.clock.after(timeoutMs, () => end(new UnansweredError("no answer in time")));
      const stream = this.#open(member, { answer: () => undefined, ended: end }, end);
      this.#ends.add(end);
      stream.renew(NO_LEASE);
    });
    if (!this.#known.has(member)) this.#probes.set(member, probe);
    return probe;
  }

  #open(
    member: Member,
    handlers: StreamHandlers<LeaseAnswer>,
    onDirect: () => void = () => undefined,
  ): KeepaliveStream {
    let direct = false;
    return member.keepalive({
      ended: (error) => handlers.ended(error),
      answer: (answer) => {
        if (direct) return handlers.answer(answer);
        direct = answer.leaseId === NO_LEASE && answer.ttlSeconds === 0;
        if (!direct) return handlers.ended(refusal(member.host));
        this.#known.add(member);
        onDirect();
      },
    });
  }
}

/** A lease that is kept alive. */
export interface LeaseListener {
  readonly leaseId: bigint;
  /** How long a renewal may stay unanswered before the stream is considered dead. */
  readonly patienceMs: number;
  /** Where all leases are renewed, it comes before those that do not say so. */
  readonly isEarly?: boolean;
  /** etcd extended the lease; it received the renewal after `sent`. */
  renewed(sent: Moment, ttlSeconds: number): void;
  /** etcd has no such lease. */
  leaseNotFound(): void;
  /** etcd does not renew it. It is tried again with the next `renew`. */
  refused?(error: EtcdRefusedError): void;
  /** Renewals use another stream from now on, or a first one after a failure: etcd may have been restored from a snapshot. */
  reconnected?(): void;
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
export class Keepalive {
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

  /** Rejects if renewals through this member would not reach etcd, or if that cannot be determined. */
  assertDirect(member: Member, options: CallOptions): Promise<void> {
    return this.#hosts.assertDirect(member, options);
  }

  /**
   * When to renew a lease that is due at `at`: then, or up to a thirtieth of its TTL earlier, in one write with others. The first
   * lease sets the phase, so processes that start one after the other do not renew at the same time.
   */
  roundBefore(at: number, ttlMs: number): number {
    const first = (this.#firstRound ??= at);
    // Whole milliseconds: ten rounds are no more than a third of the TTL, however that is rounded.
    const roundMs = Math.max(1, Math.floor(ttlMs * ROUND_PART));
    return first + Math.floor((at - first) / roundMs) * roundMs;
  }

  /** Sends a renewal now; the answer, if one arrives, goes to `listener`. */
  renew(listener: LeaseListener, now = this.clock.now()): void {
    this.#listeners.set(listener.leaseId, listener);
    // Opening a stream renews every attached lease.
    if (this.#open) this.#send(this.#open, listener, now);
    else if (this.#reopening) return;
    else if (this.#memberFailed) this.#reopen();
    else this.#openStream();
  }

  detach(listener: LeaseListener): void {
    this.#listeners.delete(listener.leaseId);
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
      void this.client.freshToken(this.#over.signal).then(reopen, reopen);
    });
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
    if (header.raftTerm < this.client.raftTermFloor) return this.#deposed(open);
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
