// `connect({ renewal: "worker" })`: a worker thread renews the leases of a cluster, so a busy main thread does not lose its locks.
// - The thread has connections of its own, with the same code: `Keepalive`, and what is below it (lease-renewer.ts).
// - This thread beats: when it has run no timer for `maxStallMs`, the worker renews no more. A process that is stuck for ever loses
//   its locks.
// - What the worker knows is in memory that both share (shared-renewal.ts). Its messages only cause what follows from it.
// - It runs while there is a lease, and a little longer. One that has ended is started again.
// - This thread renews each lease that the worker has not taken over, or has not renewed in time: `Kept.renewAt` decides, by what is
//   in that memory. Whichever thread sent the last accepted renewal, the deadline counts from it: `Lease` has the only state.
import { EtcdRefusedError, failuresText } from "../errors.js";
import type { EtcdClient } from "../etcd/client.js";
import type { KnownHost } from "../etcd/hosts.js";
import {
  type DelayListener,
  Keepalive,
  type Keeper,
  type KeptLease,
  type LeaseListener,
} from "../etcd/keepalive.js";
import { type CallOptions, type Member, MemberRefusedError, UnansweredError } from "../etcd/port.js";
import { Backoff, type Pauses } from "../etcd/retry.js";
import type { CheckedConnect } from "../base/options/connect.js";
import type { Clock, Moment, Timer } from "../base/util/clock.js";
import { inOwnContext } from "../base/util/own-context.js";
import { Certificates, programOf, reachOf } from "./reach.js";
import {
  type FailureNews,
  newRenewal,
  type RenewalNews,
  type RenewalOrder,
  type RenewalReach,
  SharedPulse,
  type SharedRenewal,
} from "./shared-renewal.js";

/** Node.js's `MessagePort`, as far as the thread uses it. */
interface Port {
  postMessage(news: RenewalNews): void;
  on(event: "message", take: (order: RenewalOrder) => void): unknown;
}

/** What the thread is started with. */
export interface RenewalStart {
  /** As it was when `connect` was called. */
  readonly reach: Readonly<Record<string, unknown>>;
  readonly now: RenewalReach;
  /** The authorities that TLS trusts here, where Node.js can tell: flags, variables and the program itself may have changed them. */
  readonly authorities: readonly string[] | undefined;
  /** A host of the cluster of the leases: the list may have hosts of others by mistake. */
  readonly known: KnownHost | undefined;
  readonly pulse: SharedArrayBuffer;
  readonly port: Port;
  /** What `process.hrtime` reads, in milliseconds, when the monotonic clock of the other thread reads 0. */
  readonly originMs: number;
}

/** The worker thread, as the main thread uses it. */
export interface ThreadHandle {
  post(order: RenewalOrder): void;
  /** Handles the messages that have arrived, which come no second time. */
  hear(): void;
  terminate(): void;
}

export interface ThreadHandlers {
  news(news: RenewalNews): void;
  /** Not after `terminate()`. */
  ended(why: string): void;
}

/** Throws where the system starts no further thread. */
export type StartThread = (setting: {
  readonly pulse: SharedPulse;
  readonly now: RenewalReach;
  readonly known: KnownHost | undefined;
  readonly handlers: ThreadHandlers;
}) => ThreadHandle;

const PROGRAM = { entry: "leasehold-renewal.js", module: "renewal-program.js" };
/** From one start to the next, if it ends before it has taken a lease over. */
const RESTARTS: Pauses = { firstMs: 1000, maxMs: 60_000, factors: [1, 1] };
/** A session that follows another one finds the thread running. */
const LINGER_MS = 5000;
const MAX_BEAT_MS = 1000;
/** So many beats in the time without which the leases are renewed no more: a late one does not matter. */
const BEATS = 4;
/** This thread renews a lease after this part of its TTL if no thread has taken it over: `Keepalive` is up to a thirtieth early. */
const DUE_PART = 0.3;
/** The same if one has: it has then had the time for an attempt at a second member. At half of the TTL, the lease is in jeopardy. */
const OVERDUE_PART = 0.45;

/** A thread that has renewed nothing for so long, and for a TTL, does not answer. On a busy machine, its start may take seconds. */
const SILENT_MS = 10_000;

const WARNING = { type: "LeaseholdWarning", code: "RENEWAL_WORKER_ENDED" };
const warningOf = (why: string): string =>
  `The worker thread does not renew leases: ${why}. ` +
  "Until one does, the main thread renews them: if its event loop is blocked for longer than the TTL, its locks are lost.";

const failureOf = ([host, message, reason]: FailureNews): Error =>
  reason === undefined
    ? new UnansweredError(message)
    : new MemberRefusedError(reason, message, { host, inDoubt: false });

const maxStallOf = ({ maxStallMs, ttlMs }: KeptLease): number => maxStallMs ?? ttlMs;

/** A lease, as this thread renews it where the worker thread does not. */
class Kept implements KeptLease {
  readonly leaseId: bigint;
  readonly patienceMs: number;
  readonly ttlMs: number;
  readonly delay: DelayListener | undefined;
  readonly renewal: SharedRenewal;
  /** The thread that runs now has said that it renews it. */
  isTaken = false;
  /** When this thread sent a renewal last, and the last one that etcd has accepted. */
  sentAt = -Infinity;
  #accepted: Moment;

  constructor(
    readonly lease: KeptLease,
    sent: Moment,
    private readonly keeper: ThreadedKeepalive,
  ) {
    ({ leaseId: this.leaseId, patienceMs: this.patienceMs, ttlMs: this.ttlMs, delay: this.delay } = lease);
    this.#accepted = sent;
    this.renewal = newRenewal(keeper);
    this.renewal.write(sent, lease.ttlMs);
  }

  /** When the last renewal that etcd has accepted was sent, by either thread. */
  get sent(): Moment {
    const { sent } = this.renewal.last;
    return sent.monotonic > this.#accepted.monotonic ? sent : this.#accepted;
  }

  renewAt(at: number, renew: (now: Moment) => void): void {
    this.lease.renewAt(at, (now) => {
      const dueAt = this.sent.monotonic + this.ttlMs * (this.isTaken ? OVERDUE_PART : DUE_PART);
      if (now.monotonic < dueAt) return this.renewAt(dueAt, renew);
      this.sentAt = now.monotonic;
      renew(now);
    });
  }

  renewed(sent: Moment, ttlSeconds: number): void {
    if (sent.monotonic > this.#accepted.monotonic) this.#accepted = sent;
    this.lease.renewed(sent, ttlSeconds);
    this.keeper.renewedHere(this, sent);
  }

  leaseNotFound(): void {
    this.lease.leaseNotFound();
  }

  refused(error: EtcdRefusedError): void {
    this.lease.refused?.(error);
  }

  reconnected(): void {
    this.lease.reconnected?.();
  }
}

/** The keeper on the main thread: has the leases of one cluster renewed by a worker thread, and renews them here where that one does not. */
export class ThreadedKeepalive implements Keeper {
  /** What renews in this thread. */
  readonly #here: Keepalive;
  readonly #certificates: Certificates;
  readonly #pulse = new SharedPulse();
  readonly #kept = new Map<bigint, Kept>();
  /** By lease: who gets the answers of the thread for delay leases, which it renews with those that they belong to. */
  readonly #delays = new Map<bigint, LeaseListener>();
  #thread: ThreadHandle | undefined;
  #startedAt = -Infinity;
  /** The next one is not started before. */
  #startAt = -Infinity;
  readonly #restarts: Backoff;
  failure: string | undefined;
  /** Those that were told, so that none is told again. */
  readonly #warned = new Set<string>();
  /** Why the hosts failed, as the thread said last. */
  #failures: ReadonlyMap<string, Error> = new Map();
  /** Those of `connect`. */
  readonly #given: readonly string[];
  /** As text: what it was told last. */
  #reach: string | undefined;
  #beating: Timer | undefined;
  /** The timer of the thread's next start, or of its end. */
  #later: Timer | undefined;

  constructor(
    private readonly client: EtcdClient,
    private readonly clock: Clock,
    private readonly start: StartThread,
  ) {
    this.#here = new Keepalive(client, clock);
    this.#restarts = new Backoff(clock, RESTARTS);
    this.#certificates = new Certificates(client);
    this.#given = [...client.hosts.names];
    client.floor.share(this.#pulse.floor, (probe) => this.#thread?.post({ do: "probe", probe }));
  }

  assertDirect(member: Member, options: CallOptions): Promise<void> {
    return this.#here.assertDirect(member, options);
  }

  keep(lease: KeptLease, sent: Moment): SharedRenewal {
    const kept = new Kept(lease, sent, this);
    this.#kept.set(lease.leaseId, kept);
    if (lease.delay) this.#delays.set(lease.delay.leaseId, lease.delay);
    this.#here.keep(kept, sent);
    this.#beat();
    if (this.#thread) this.#order(this.#thread, kept);
    else this.#begin();
    return kept.renewal;
  }

  /** By this thread, if no other one has taken the lease over: as before it is kept. */
  renew(listener: LeaseListener, now = this.clock.now()): void {
    const { leaseId, patienceMs } = listener;
    const kept = this.#kept.get(leaseId);
    if (kept?.isTaken) return this.#thread?.post({ do: "renew", leaseId, patienceMs });
    if (kept) kept.sentAt = now.monotonic;
    this.#here.renew(kept ?? listener, now);
  }

  detach({ leaseId }: Pick<LeaseListener, "leaseId">): void {
    this.#here.detach({ leaseId });
    this.#delays.delete(leaseId);
    this.#kept.delete(leaseId);
    this.#thread?.post({ do: "detach", leaseId });
    if (this.#kept.size === 0) this.#in(LINGER_MS, () => this.#kept.size === 0 && this.#end());
  }

  close(): void {
    this.#here.close();
    this.#delays.clear();
    this.#kept.clear();
    this.#end();
  }

  /** Starts the thread, which then hears of all leases; later, if it has just been started. */
  #begin(): void {
    this.#later?.cancel();
    if (this.#kept.size === 0) return;
    const now = this.clock.monotonic();
    if (now < this.#startAt) return this.#in(this.#startAt - now, () => this.#begin());
    this.#startedAt = now;
    this.#failures = new Map();
    const reach = this.#reachAt(now);
    this.#reach = JSON.stringify(reach);
    const { known } = this.client.hosts;
    const handlers = {
      news: (news: RenewalNews) => this.#heard(news),
      ended: (why: string) => this.#ended(why),
    };
    try {
      this.#thread = inOwnContext(() => this.start({ pulse: this.#pulse, now: reach, known, handlers }));
    } catch (error) {
      return this.#ended((error as Error).message);
    }
    const { probe } = this.client.floor;
    if (probe) this.#thread.post({ do: "probe", probe });
    for (const kept of this.#kept.values()) this.#order(this.#thread, kept);
  }

  #order(thread: ThreadHandle, { lease, renewal: { memory }, sent }: Kept): void {
    const { leaseId, ttlMs, patienceMs, delay } = lease;
    thread.post({
      do: "keep",
      leaseId,
      ttlMs,
      patienceMs,
      memory,
      sent,
      delay: delay && !delay.isGone ? { leaseId: delay.leaseId, patienceMs: delay.patienceMs } : undefined,
      maxStallMs: maxStallOf(lease),
    });
  }

  hear(): void {
    this.#thread?.hear();
  }

  #ended(why: string): void {
    this.#thread = undefined;
    this.#startAt = this.#startedAt + this.#restarts.nextMs();
    if (this.#kept.size === 0) return;
    this.#failed(why);
    for (const kept of this.#kept.values()) {
      if (kept.isTaken) this.#here.keep(kept, kept.sent);
      kept.isTaken = false;
    }
    this.#begin();
  }

  #failed(why: string): void {
    this.failure = why;
    if (this.#warned.has(why)) return;
    this.#warned.add(why);
    process.emitWarning(warningOf(why), WARNING);
  }

  /** Without this thread, the lease would have expired: the thread that runs has not renewed it for so long. */
  renewedHere({ renewal: { last }, ttlMs }: Kept, { monotonic }: Moment): void {
    this.#tellReach();
    const silentMs = monotonic - Math.max(last.sent.monotonic, this.#startedAt);
    if (this.#thread && silentMs >= Math.max(ttlMs, SILENT_MS))
      this.#failed(this.#failures.size > 0 ? failuresText(this.#failures) : "it does not answer");
  }

  #end(): void {
    this.#later?.cancel();
    this.#beating?.cancel();
    this.#beating = undefined;
    this.#thread?.terminate();
    this.#thread = undefined;
  }

  /** One timer for both: it never begins and ends at a time. */
  #in(ms: number, run: () => unknown): void {
    this.#later?.cancel();
    this.#later = this.clock.after(ms, run);
    this.#later.unref?.();
  }

  readonly #beat = (): void => {
    this.#pulse.beat(this.clock.monotonic());
    this.#beating?.cancel();
    const limits = [...this.#kept.values()].map(({ lease }) => maxStallOf(lease) / BEATS);
    this.#beating = this.clock.after(Math.min(MAX_BEAT_MS, ...limits), this.#beat);
    this.#beating.unref?.();
  };

  #heard(news: RenewalNews): void {
    if (news.is === "failing") {
      this.#failures = new Map(news.failures.map((failure) => [failure[0], failureOf(failure)]));
      for (const [host, error] of this.#failures) this.client.hosts.streamFailed(host, error);
      return this.#tellReach(true);
    }
    const kept = this.#kept.get(news.leaseId);
    const listener = kept?.lease ?? this.#delays.get(news.leaseId);
    switch (news.is) {
      case "kept":
        this.#restarts.reset();
        if (kept) kept.isTaken = true;
        return;
      case "renewed":
        if (news.host !== undefined) this.client.hosts.contacted(news.host);
        this.failure = undefined;
        this.#failures = new Map();
        this.#tellReach();
        if (kept && news.sent.monotonic > kept.sentAt) this.#leaveTo(kept);
        return listener?.renewed(news.sent, news.ttlSeconds, news.answeredAt);
      case "gone":
        return listener?.leaseNotFound();
      case "reconnected":
        return listener?.reconnected?.();
      case "refused": {
        const { reason, host, details } = news;
        const error = new EtcdRefusedError(reason, host, details, { what: "renew a lease" });
        // The password may have been changed: that of now is passed on at once.
        if (reason === "unauthenticated") this.#tellReach(true);
        return listener?.refused?.(error);
      }
    }
  }

  /** The thread has renewed the lease since this one did, which needs no stream for it any more. */
  #leaveTo({ leaseId, delay }: Kept): void {
    this.#here.detach({ leaseId });
    if (delay) this.#here.detach(delay);
  }

  /** Above all while the thread fails: what it is told may be what it lacks. */
  #tellReach(again = false): void {
    const reach = this.#reachAt(this.clock.monotonic(), again);
    const text = JSON.stringify(reach);
    if (text === this.#reach) return;
    this.#reach = text;
    this.#thread?.post({ do: "reach", ...reach });
  }

  #reachAt(now: number, again = false): RenewalReach {
    const { names } = this.client.hosts;
    const isGiven = names.length === this.#given.length && names.every((name, n) => name === this.#given[n]);
    return { ...this.#certificates.at(now, again), hosts: isGiven ? undefined : [...names] };
  }
}

/** With this flag, a thread trusts what its process does, and Node.js does not list it. */
const OPENSSL = "--use-openssl-ca";
/** A thread gets this flag, too, where it cannot be told what to trust. What a program preloads is not loaded twice. */
const SYSTEM = "--use-system-ca";
const hasFlag = (flag: string): boolean =>
  [...process.execArgv, ...(process.env["NODE_OPTIONS"] ?? "").split(/\s+/)].includes(flag);

/** Since Node.js 22.19. */
interface TrustingTls {
  getCACertificates?(type: "default"): string[];
  setDefaultCACertificates?(certificates: readonly string[]): void;
}

/** The `node:tls` of the thread that calls it. */
export const trustingTls = (): TrustingTls => process.getBuiltinModule("node:tls") as TrustingTls;

const needsSystemFlag = (): boolean =>
  hasFlag(SYSTEM) && trustingTls().setDefaultCACertificates === undefined;

function authoritiesFor(options: CheckedConnect, { credentials }: RenewalReach): string[] | undefined {
  const isNeeded = credentials === undefined && options.hosts.some((host) => !host.startsWith("http:"));
  return isNeeded && !hasFlag(OPENSSL) ? trustingTls().getCACertificates?.("default") : undefined;
}

/** `process.hrtime` and `performance.now` are read within so long of each other, if any of so many tries allows it. */
const TRIES = 100;
export const CLOCKS_MS = 0.05;

/** What `process.hrtime` reads, in milliseconds, when the clock reads 0: both go by the monotonic clock of the system. */
export function originOf(clock: Clock): number {
  const hrtimeMs = (): number => Number(process.hrtime.bigint()) / 1e6;
  let best = { tookMs: Infinity, origin: 0 };
  // The thread may be interrupted in between.
  for (let n = 0; n < TRIES && best.tookMs >= CLOCKS_MS; n++) {
    const before = hrtimeMs();
    const origin = before - clock.monotonic();
    const tookMs = hrtimeMs() - before;
    if (tookMs < best.tookMs) best = { tookMs, origin };
  }
  return best.origin;
}

/**
 * How a cluster starts its thread.
 * @throws {RangeError} where no thread can be started.
 */
export function threadStarter(options: CheckedConnect, clock: Clock): StartThread {
  const program = programOf(PROGRAM, "renewal");
  const permission = (process as { permission?: { has(scope: string): boolean } }).permission;
  if (permission?.has("worker") === false)
    throw new RangeError('Option renewal: "worker" needs Node.js\'s flag --allow-worker here');
  const reach = reachOf(options);
  return ({ pulse, now, known, handlers }) => {
    const { Worker, MessageChannel, receiveMessageOnPort } = process.getBuiltinModule("node:worker_threads");
    const { port1, port2 } = new MessageChannel();
    const start: RenewalStart = {
      reach,
      now,
      authorities: authoritiesFor(options, now),
      known,
      pulse: pulse.memory,
      port: port2,
      originMs: originOf(clock),
    };
    const worker = new Worker(program, {
      name: "leasehold-renewal",
      workerData: start,
      transferList: [port2],
      env: {},
      execArgv: needsSystemFlag() ? [SYSTEM] : [],
      // The thread has one connection, and no more objects than that needs.
      resourceLimits: { maxYoungGenerationSizeMb: 2, maxOldGenerationSizeMb: 64 },
    });
    let isOver = false;
    const ended = (why: string): void => {
      if (!isOver) handlers.ended(why);
      isOver = true;
      port1.close();
    };
    worker.on("error", ({ message }) => ended(message)).on("exit", (code) => ended(`exit code ${code}`));
    port1.on("message", (news: RenewalNews) => handlers.news(news));
    // The thread does not keep this process alive.
    worker.unref();
    port1.unref();
    return {
      post: (order) => void (!isOver && port1.postMessage(order)),
      hear() {
        for (;;) {
          const received = receiveMessageOnPort(port1) as { readonly message: RenewalNews } | undefined;
          if (received === undefined) return;
          handlers.news(received.message);
        }
      },
      terminate() {
        isOver = true;
        port1.postMessage({ do: "end" } satisfies RenewalOrder);
        port1.close();
      },
    };
  };
}
