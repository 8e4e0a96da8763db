import type { Clock } from "../../../src/async/clock.js";
import { streamFailure } from "../../../src/etcd/grpc/failures.js";
import { AuthDisabledError } from "../../../src/etcd/port-errors.js";
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
import { reasonFailure } from "../../../src/etcd/refusals/refusals.js";
import { isRefusal, refusalOf, unary, UnaryServices } from "./unary.js";
import type { StreamListener, Wire } from "./wire.js";

/** The client's port over a simulated connection: the place of `GrpcMember`. Without a clock, no call has a time limit. */
export class SimMember implements Member {
  readonly #services: UnaryServices;

  constructor(
    readonly host: string,
    private readonly wire: Wire,
    clock?: Clock,
  ) {
    this.#services = new UnaryServices(host, wire, clock);
  }

  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    return unary(this.#services, { kind: "txns", txns }, options);
  }

  range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    return unary(this.#services, { kind: "range", range }, options);
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return unary(this.#services, { kind: "grant", leaseId, ttlSeconds }, options);
  }

  async revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    await unary(this.#services, { kind: "revoke", leaseId }, options);
  }

  timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    const withoutKeys = options.withoutKeys ?? false;
    return unary(this.#services, { kind: "timeToLive", leaseId, withoutKeys }, options);
  }

  /** Compaction is not part of the port. */
  async compact(revision: bigint, options: CallOptions): Promise<void> {
    await unary(this.#services, { kind: "compact", revision }, options);
  }

  authenticate(): Promise<string> {
    return Promise.reject(new AuthDisabledError("etcdserver: authentication is not enabled"));
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const stream = this.wire.keepalive(this.#listener(handlers));
    return { renew: (leaseId) => stream.send(leaseId), close: () => stream.close() };
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const stream = this.wire.watch(this.#listener(handlers));
    return {
      create: (create) => stream.send({ create }),
      cancel: (cancel) => stream.send({ cancel }),
      probe: () => stream.send({ probe: true }),
      close: () => stream.close(),
    };
  }

  failure(reason: string): Error {
    return reasonFailure(reason, this.host, false);
  }

  retire(): void {
    this.#services.aborts.release();
    this.wire.retire();
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
