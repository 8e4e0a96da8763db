import type { Clock } from "../../../src/util/clock.js";
import { streamFailure } from "../../../src/etcd/http2/failure.js";
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
} from "../../../src/etcd/port.js";
import { reasonFailure } from "../../../src/etcd/refusals.js";
import type { UnaryRequest } from "../etcd/types.js";
import { isRefusal, refusalOf, unary, UnaryServices } from "./unary.js";
import type { StreamListener, Wire } from "./wire.js";

export interface SimMemberOptions {
  /** Without it, no call has a time limit. */
  readonly clock?: Clock;
  /** The token of the next call or stream. Default: none, and the client has no password. */
  readonly token?: (() => string | undefined) | undefined;
}

/** The client's port over a simulated connection: the place of `GrpcMember`. */
export class SimMember implements Member {
  readonly #services: UnaryServices;
  readonly #token: SimMemberOptions["token"];
  /** The token of the last stream. */
  #streamToken: string | undefined;

  constructor(
    readonly host: string,
    private readonly wire: Wire,
    { clock, token }: SimMemberOptions = {},
  ) {
    this.#services = new UnaryServices(host, wire, clock);
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
    return reasonFailure(reason, this.host, this.#token !== undefined && this.#streamToken === undefined);
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
    return {
      answer: (answer) =>
        isRefusal(answer) ? handlers.ended(refusalOf(answer, host)) : handlers.answer(answer),
      failed: (failure, inDoubt) => handlers.ended(streamFailure(failure, host, inDoubt)),
    };
  }
}
