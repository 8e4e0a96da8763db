import type {
  CallOptions,
  KeepaliveStream,
  LeaseAnswer,
  Member,
  Range,
  RangeAnswer,
  StreamHandlers,
  TimeToLiveOptions,
  Txn,
  TxnAnswer,
  WatchAnswer,
  WatchStream,
} from "../../../etcd/port.js";
import type { Failures } from "../../../etcd/transport.js";
import { AbortFanOut } from "../../../base/util/abort.js";
import type { Clock } from "../../../base/util/clock.js";
import { Timers } from "../../../base/util/timers.js";
import { isRefusal, type Refusal, type UnaryReply, type UnaryRequest } from "../protocol.js";
import type { StreamListener, Wire } from "./wire.js";

export interface SimMemberOptions {
  /** Of the client's copy of the library. */
  readonly failures: Failures;
  /** Without it, no call has a time limit. */
  readonly clock?: Clock | undefined;
  /** The token of the next call or stream. Default: none, and the client has no password. */
  readonly token?: (() => string | undefined) | undefined;
}

/** The client's port over a simulated connection: the place of `GrpcMember`. */
export class SimMember implements Member {
  readonly #failures: Failures;
  readonly #services: UnaryServices;
  readonly #token: SimMemberOptions["token"];
  /** The token of the last stream. */
  #streamToken: string | undefined;

  constructor(
    readonly host: string,
    private readonly wire: Wire,
    { failures, clock, token }: SimMemberOptions,
  ) {
    this.#failures = failures;
    this.#services = new UnaryServices(host, wire, { failures, clock });
    this.#token = token;
  }

  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    return this.#unary({ kind: "txns", txns }, options);
  }

  range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    return this.#unary({ kind: "range", range }, options);
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return this.#unary({ kind: "grant", leaseId, ttlSeconds }, options);
  }

  async revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    await this.#unary({ kind: "revoke", leaseId }, options);
  }

  timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    const withoutKeys = options.withoutKeys ?? false;
    return this.#unary({ kind: "timeToLive", leaseId, withoutKeys }, options);
  }

  /** Compaction is not part of the port. */
  async compact(revision: bigint, options: CallOptions): Promise<void> {
    await this.#unary({ kind: "compact", revision }, options);
  }

  async authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    const request = { kind: "authenticate", username, password } as const;
    const { token } = await unary<{ readonly token: string }>(this.#services, request, options);
    return token;
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const stream = this.wire.keepalive(this.#listener(handlers), this.#streamTokenNow());
    return { renew: (leaseId) => stream.send(leaseId), close: () => stream.close() };
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const stream = this.wire.watch(this.#listener(handlers), this.#streamTokenNow());
    return {
      create: (create) => stream.send({ create }),
      cancel: (cancel) => stream.send({ cancel }),
      probe: () => stream.send({ probe: true }),
      close: () => stream.close(),
    };
  }

  failure(reason: string): Error {
    const tokenless = this.#token !== undefined && this.#streamToken === undefined;
    return this.#failures.reasonFailure(reason, this.host, tokenless);
  }

  retire(): void {
    this.#services.aborts.release();
    this.wire.retire();
  }

  /** Adds the token to `request`, which the caller does not keep. */
  #unary<T>(request: UnaryRequest & { token?: string | undefined }, options: CallOptions): Promise<T> {
    request.token = this.#token?.();
    return unary(this.#services, request, options);
  }

  #streamTokenNow(): string | undefined {
    return (this.#streamToken = this.#token?.());
  }

  #listener<Answer extends object>(handlers: StreamHandlers<Answer>): StreamListener<Answer> {
    const { host } = this;
    const { statusFailure, streamFailure } = this.#failures;
    return {
      answer: (answer) =>
        isRefusal(answer) ? handlers.ended(statusFailure(statusOf(answer), host)) : handlers.answer(answer),
      failed: (failure, inDoubt) => handlers.ended(streamFailure(failure, host, inDoubt)),
    };
  }
}

/** What the unary calls of one `SimMember` share. */
class UnaryServices {
  readonly failures: Failures;
  readonly deadlines: Timers | undefined;
  readonly aborts = new AbortFanOut("last");

  constructor(
    readonly host: string,
    readonly wire: Wire,
    { failures, clock }: Pick<SimMemberOptions, "failures" | "clock">,
  ) {
    this.failures = failures;
    this.deadlines = clock && new Timers(clock);
  }
}

const statusOf = ({ refused, code }: Refusal) => ({ code, details: refused });

/** One unary call: settles as `UnaryStream` of `src/etcd/http2` does, with the same errors and in the same order. */
function unary<T>(services: UnaryServices, request: UnaryRequest, options: CallOptions): Promise<T> {
  if (options.signal?.aborted) return Promise.reject(services.failures.gaveUp(false));
  return new Promise<unknown>((resolve, reject) => {
    new Unary(services, options, { resolve, reject }).start(request);
  }) as Promise<T>;
}

class Unary {
  #sent = false;
  #stops: (() => void)[] = [];

  constructor(
    private readonly services: UnaryServices,
    private readonly options: CallOptions,
    private readonly settle: { resolve(answer: unknown): void; reject(error: Error): void },
  ) {}

  start(request: UnaryRequest): void {
    const { deadlines, aborts, wire, host, failures } = this.services;
    const { timeoutMs, signal } = this.options;
    let cancelCall = (): void => {};
    const giveUp = (error: Error): void => {
      cancelCall();
      this.#fail(error);
    };
    const deadline = deadlines?.add(timeoutMs, () => giveUp(this.#timeout()));
    this.#stops.push(() => deadline?.cancel());
    const onAbort = (): void => giveUp(failures.gaveUp(this.#sent));
    if (signal !== undefined) this.#stops.push(aborts.add(signal, onAbort));
    cancelCall = wire.call(request, {
      sent: () => {
        this.#sent = true;
        this.options.onSent?.();
      },
      replied: (reply) => this.#replied(reply),
      failed: (failure, inDoubt) => this.#fail(failures.streamFailure(failure, host, inDoubt)),
    });
  }

  #replied(reply: UnaryReply): void {
    const { failures, host } = this.services;
    if (isRefusal(reply)) return this.#fail(failures.statusFailure(statusOf(reply), host));
    this.#stop();
    this.settle.resolve(reply.answer);
  }

  #timeout(): Error {
    const what = this.#sent ? "no answer" : "no connection";
    const ms = Math.round(this.options.timeoutMs);
    return new this.services.failures.UnansweredError(`${what} within ${ms} ms`, { inDoubt: this.#sent });
  }

  #fail(error: Error): void {
    this.#stop();
    this.settle.reject(error);
  }

  #stop(): void {
    for (const stop of this.#stops) stop();
  }
}
