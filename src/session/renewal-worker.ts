// `connect({ renewal: "worker" })`: a worker thread renews the leases of a cluster, so a busy main thread does not lose its locks.
// - The thread has connections of its own, with the same code: `Keepalive`, and what is below it (renewal-thread.ts).
// - This thread beats: when it has run no timer for `maxStallMs`, the worker renews no more. A process that is stuck for ever loses
//   its locks.
// - What the worker knows is in memory that both share (shared-renewal.ts). Its messages only cause what follows from it.
// - It runs while there is a lease, and a little longer. One that has ended is started again.
import { EtcdRefusedError } from "../errors.js";
import type { EtcdClient } from "../etcd/client.js";
import { DirectHosts } from "../etcd/direct-hosts.js";
import type { KnownHost } from "../etcd/hosts.js";
import type { Keeper, KeptLease, LeaseListener } from "../etcd/keepalive.js";
import { type CallOptions, type Member, UnansweredError } from "../etcd/port.js";
import { rangeError } from "../options/check.js";
import type { CheckedConnect } from "../options/connect.js";
import type { Clock, Moment, Timer } from "../util/clock.js";
import { inOwnContext } from "../util/own-context.js";
import { Certificates, type PemText, programOf, reachOf } from "./reach.js";
import {
  newRenewal,
  type RenewalNews,
  type RenewalOrder,
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
  readonly reach: Readonly<Record<string, unknown>>;
  readonly credentials: PemText | undefined;
  /** The authorities that TLS trusts here, where Node.js can tell: flags, variables and the program itself may have changed them. */
  readonly authorities: readonly string[] | undefined;
  /** A host of the cluster of the leases: the list may have hosts of others by mistake. */
  readonly known: KnownHost | undefined;
  readonly pulse: SharedArrayBuffer;
  readonly port: Port;
  /** What `process.hrtime` reads, in milliseconds, when the monotonic clock of the other thread reads 0. */
  readonly originMs: number;
}

/** The other thread, as this one uses it. */
export interface RenewalThread {
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
  readonly credentials: PemText | undefined;
  readonly known: KnownHost | undefined;
  readonly handlers: ThreadHandlers;
}) => RenewalThread;

const PROGRAM = { entry: "leasehold-renewal.js", module: "renewal-program.js" };
/** From one start to the next, if it ends at once. */
const RESTART_MS = 1000;
/** A session that follows another one finds the thread running. */
const LINGER_MS = 5000;
const MAX_BEAT_MS = 1000;
/** So many beats in the time without which the leases are renewed no more: a late one does not matter. */
const BEATS = 4;

const ENDED =
  "The worker thread that renews leases has ended, and is started again. Until then, no lease is renewed.";
const WARNING = { type: "LeaseholdWarning", code: "RENEWAL_WORKER_ENDED" };

interface Kept {
  readonly lease: KeptLease;
  readonly renewal: SharedRenewal;
}

const maxStallOf = ({ maxStallMs, ttlMs }: KeptLease): number => maxStallMs ?? ttlMs;

/** Has the leases of one cluster renewed by a worker thread. */
export class RenewalWorker implements Keeper {
  readonly #directHosts: DirectHosts;
  readonly #certificates: Certificates;
  readonly #pulse = new SharedPulse();
  readonly #kept = new Map<bigint, Kept>();
  /** By lease: who gets the answers. */
  readonly #listeners = new Map<bigint, LeaseListener>();
  /** The same of delay leases, which the thread renews with those that they belong to. */
  readonly #delays = new Map<bigint, LeaseListener>();
  #thread: RenewalThread | undefined;
  #startedAt = -Infinity;
  failure: string | undefined;
  /** As text: the certificates that it was told last. */
  #trusted: string | undefined;
  #beating: Timer | undefined;
  /** It is to begin, or to end. */
  #later: Timer | undefined;

  constructor(
    private readonly client: EtcdClient,
    private readonly clock: Clock,
    private readonly start: StartThread,
  ) {
    this.#directHosts = new DirectHosts(clock);
    this.#certificates = new Certificates(client);
    client.floor.share(this.#pulse.floor, (probe) => this.#thread?.post({ do: "probe", probe }));
  }

  assertDirect(member: Member, options: CallOptions): Promise<void> {
    return this.#directHosts.assertDirect(member, options);
  }

  keep(lease: KeptLease, sent: Moment): SharedRenewal {
    const renewal = newRenewal(this);
    renewal.write(sent, lease.ttlMs);
    const kept = { lease, renewal };
    this.#listeners.set(lease.leaseId, lease);
    this.#kept.set(lease.leaseId, kept);
    if (lease.delay) this.#delays.set(lease.delay.leaseId, lease.delay);
    this.#beat();
    if (this.#thread) this.#order(this.#thread, kept);
    else this.#begin();
    return renewal;
  }

  renew(listener: LeaseListener): void {
    this.#listeners.set(listener.leaseId, listener);
    if (this.#thread) this.#askFor(this.#thread, listener);
    else this.#begin();
  }

  detach({ leaseId }: Pick<LeaseListener, "leaseId">): void {
    this.#listeners.delete(leaseId);
    this.#delays.delete(leaseId);
    this.#kept.delete(leaseId);
    this.#thread?.post({ do: "detach", leaseId });
    if (this.#listeners.size === 0) this.#in(LINGER_MS, () => this.#listeners.size === 0 && this.#end());
  }

  close(): void {
    this.#directHosts.close();
    this.#listeners.clear();
    this.#delays.clear();
    this.#kept.clear();
    this.#end();
  }

  /** Starts the thread, which then hears of all leases; later, if it has just been started. */
  #begin(): void {
    this.#later?.cancel();
    if (this.#listeners.size === 0) return;
    const inMs = this.#startedAt + RESTART_MS - this.clock.monotonic();
    if (inMs > 0) return this.#in(inMs, () => this.#begin());
    this.#startedAt = this.clock.monotonic();
    const credentials = this.#certificates.at(this.#startedAt);
    this.#trusted = JSON.stringify(credentials);
    const { known } = this.client.hosts;
    const handlers = {
      news: (news: RenewalNews) => this.#heard(news),
      ended: (why: string) => this.#ended(why),
    };
    try {
      this.#thread = inOwnContext(() => this.start({ pulse: this.#pulse, credentials, known, handlers }));
    } catch (error) {
      return this.#ended((error as Error).message);
    }
    const { probe } = this.client.floor;
    if (probe) this.#thread.post({ do: "probe", probe });
    for (const [leaseId, listener] of this.#listeners) {
      const kept = this.#kept.get(leaseId);
      if (kept) this.#order(this.#thread, kept);
      else this.#askFor(this.#thread, listener);
    }
  }

  #order(thread: RenewalThread, { lease, renewal }: Kept): void {
    const { leaseId, ttlMs, patienceMs, delay } = lease;
    const { memory, last } = renewal;
    thread.post({
      ...{ do: "keep", leaseId, ttlMs, patienceMs, memory, sent: last.sent },
      delay: delay && !delay.isGone ? { leaseId: delay.leaseId, patienceMs: delay.patienceMs } : undefined,
      maxStallMs: maxStallOf(lease),
    });
  }

  #askFor(thread: RenewalThread, { leaseId, patienceMs }: LeaseListener): void {
    thread.post({ do: "renew", leaseId, patienceMs });
  }

  hear(): void {
    this.#thread?.hear();
  }

  #ended(why: string): void {
    this.#thread = undefined;
    if (this.#listeners.size === 0) return;
    if (this.failure === undefined) process.emitWarning(`${ENDED} It ended by: ${why}`, WARNING);
    this.failure = why;
    this.#begin();
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
      for (const [host, message] of news.failures)
        this.client.hosts.streamFailed(host, new UnansweredError(message));
      return;
    }
    const listener = this.#listeners.get(news.leaseId) ?? this.#delays.get(news.leaseId);
    switch (news.is) {
      case "renewed":
        if (news.host !== undefined) this.client.hosts.contacted(news.host);
        this.failure = undefined;
        this.#tellCertificates();
        return listener?.renewed(news.sent, news.ttlSeconds);
      case "gone":
        return listener?.leaseNotFound();
      case "reconnected":
        return listener?.reconnected?.();
      case "refused": {
        const { reason, host, details } = news;
        const error = new EtcdRefusedError(reason, host, details, { what: "renew a lease" });
        return listener?.refused?.(error);
      }
    }
  }

  #tellCertificates(): void {
    const credentials = this.#certificates.at(this.clock.monotonic());
    const text = JSON.stringify(credentials);
    if (credentials === undefined || text === this.#trusted) return;
    this.#trusted = text;
    this.#thread?.post({ do: "trust", credentials });
  }
}

/** With this flag, a thread trusts what its process does, and Node.js does not list it. */
const OPENSSL = "--use-openssl-ca";
/** Of this one, a thread has its own where it cannot be told what to trust. What a program preloads is not loaded twice. */
const SYSTEM = "--use-system-ca";
const hasFlag = (flag: string): boolean =>
  [...process.execArgv, ...(process.env["NODE_OPTIONS"] ?? "").split(/\s+/)].includes(flag);

/** Since Node.js 22.19. */
interface TrustingTls {
  getCACertificates?(type: "default"): string[];
  setDefaultCACertificates?(certificates: readonly string[]): void;
}

/** Of the thread that calls it. */
export const trustingTls = (): TrustingTls => process.getBuiltinModule("node:tls") as TrustingTls;

const needsSystemFlag = (): boolean =>
  hasFlag(SYSTEM) && trustingTls().setDefaultCACertificates === undefined;

function authoritiesFor(options: CheckedConnect, credentials: PemText | undefined): string[] | undefined {
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
  const program = programOf(PROGRAM, "renewal", "worker");
  const permission = (process as { permission?: { has(scope: string): boolean } }).permission;
  if (permission?.has("worker") === false)
    throw rangeError("renewal", '"main" here: Node.js runs without --allow-worker', "worker");
  const reach = reachOf(options);
  return ({ pulse, credentials, known, handlers }) => {
    const { Worker, MessageChannel, receiveMessageOnPort } = process.getBuiltinModule("node:worker_threads");
    const { port1, port2 } = new MessageChannel();
    const start: RenewalStart = {
      ...{ reach, credentials, authorities: authoritiesFor(options, credentials) },
      ...{ known, pulse: pulse.memory, port: port2 },
      originMs: originOf(clock),
    };
    const worker = new Worker(program, {
      ...{ name: "leasehold-renewal", workerData: start, transferList: [port2] },
      ...{ env: {}, execArgv: needsSystemFlag() ? [SYSTEM] : [] },
      // It has one connection, and no more objects than that needs.
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
    // It does not keep this process alive.
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
