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
  /** etcd extended the lease; it received the renewal after `sent`. */
  renewed(sent: Moment, ttlSeconds: number): void;
  /** etcd has no such lease. */
  leaseNotFound(): void;
  /** etcd does not renew it. It is tried again with the next `renew`. */
  refused?(error: EtcdRefusedError): void;
  /** Renewals use another stream from now on, or a first one after a failure: etcd may have been restored from a snapshot. */
  reconnected?(): void;
}

/** The unanswered renewals of a lease, oldest first, and the timer for the oldest. */
interface UnansweredRenewals {
  readonly patienceMs: number;
  readonly unanswered: Moment[];
  timer: Timer | undefined;
}

interface OpenStream {
  readonly member: Member;
  readonly stream: KeepaliveStream;
  /** The sends on this stream only: an answer must not be matched to a renewal that was sent on another stream. */
  readonly sends: Map<bigint, UnansweredRenewals>;
  /** The leases of all unanswered renewals, in the order of their sends, which is the order of the answers; also of detached ones. */
  readonly order: bigint[];
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

  /** Sends a renewal now; the answer, if one arrives, goes to `listener`. */
  renew(listener: LeaseListener): void {
    this.#listeners.set(listener.leaseId, listener);
    // Opening a stream renews every attached lease.
    if (this.#open) this.#send(this.#open, listener);
    else if (this.#reopening) return;
    else if (this.#memberFailed) this.#reopen();
    else this.#openStream();
  }

  detach(listener: LeaseListener): void {
    this.#listeners.delete(listener.leaseId);
    this.#open?.sends.get(listener.leaseId)?.timer?.cancel();
    this.#open?.sends.delete(listener.leaseId);
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
    for (const { timer } of open?.sends.values() ?? []) timer?.cancel();
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
    const open: OpenStream = { member, stream, sends: new Map(), order: [] };
    this.#open = open;
    this.#renewAll();
    return true;
  }

  /** etcd 3.6 checks the token of this stream, too; older versions check only those of calls and new watches. */
  #ended(open: OpenStream, error: Error): void {
    const refusal = error instanceof EtcdRefusedError && error.reason === "permission" ? error : undefined;
    const [refusedId] = open.order;
    if (refusal && refusedId !== undefined) return this.#reopenWithout(refusedId, refusal);
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
    for (const listener of this.#listeners.values()) if (this.#open) this.#send(this.#open, listener);
  }

  #send(open: OpenStream, listener: LeaseListener): void {
    const { leaseId, patienceMs } = listener;
    const sends: UnansweredRenewals = open.sends.get(leaseId) ?? {
      patienceMs,
      unanswered: [],
      timer: undefined,
    };
    open.sends.set(leaseId, sends);
    // Noted before the write: etcd's TTL starts when it receives the renewal, so the client's deadline comes first.
    sends.unanswered.push(this.clock.now());
    open.order.push(leaseId);
    open.stream.renew(leaseId);
    sends.timer ??= this.#patience(open, sends, patienceMs);
  }

  #patience(open: OpenStream, sends: UnansweredRenewals, delayMs: number): Timer {
    return this.clock.after(delayMs, () => {
      // After this process was paused, the answer may still be in the socket: timers run before it is read.
      sends.timer = this.clock.afterPendingEvents(() => {
        const [oldest] = sends.unanswered;
        sends.timer = undefined;
        if (open !== this.#open || !oldest) return;
        const left = oldest.monotonic + sends.patienceMs - this.clock.monotonic();
        if (left > 0) sends.timer = this.#patience(open, sends, left);
        else this.client.pool.fail(open.member, unanswered(open.stream));
      });
    });
  }

  #answered(open: OpenStream, { header, leaseId, ttlSeconds }: LeaseAnswer): void {
    const at = open.order.indexOf(leaseId);
    if (at >= 0) open.order.splice(at, 1);
    const sends = open.sends.get(leaseId);
    const sent = sends?.unanswered.shift();
    const listener = this.#listeners.get(leaseId);
    if (!sends || !sent || !listener) return;
    this.#retry.reset();
    if (!this.client.pool.accepts(open.member, header)) return;
    // The timer ends when nothing is unanswered; otherwise it checks again when it is due.
    if (sends.unanswered.length === 0) {
      sends.timer?.cancel();
      sends.timer = undefined;
    }
    if (header.raftTerm < this.client.raftTermFloor) return this.#deposed(open);
    if (ttlSeconds <= 0) return listener.leaseNotFound();
    listener.renewed(sent, ttlSeconds);
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
