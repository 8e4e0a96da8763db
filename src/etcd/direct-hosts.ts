import { AbortFanOut } from "../base/util/abort.js";
import type { Clock } from "../base/util/clock.js";
import { inOwnContext } from "../base/util/own-context.js";
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
export class DirectHosts {
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
