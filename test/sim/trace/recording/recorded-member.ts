import {
  type CallOptions,
  type KeepaliveStream,
  type LeaseAnswer,
  LeaseNotFoundError,
  type Member,
  type Range,
  type RangeAnswer,
  type StreamHandlers,
  type TimeToLiveOptions,
  type Txn,
  type TxnAnswer,
  type WatchAnswer,
  type WatchStream,
} from "../../../../src/etcd/port.js";
import type { Failure, TraceEvent } from "../events.js";

type OfProcessEvent = Extract<TraceEvent, { process: number }>;

/** What the members of one process share. */
export interface Recording {
  readonly process: number;
  add(event: OfProcessEvent): void;
  nextId(): number;
}

/** A member that records a client's requests and their answers. It adds no turn of the event loop to any answer. */
export class RecordedMember implements Member {
  constructor(
    private readonly member: Member,
    private readonly recording: Recording,
  ) {}

  get host(): string {
    return this.member.host;
  }

  get loading(): Promise<unknown> | undefined {
    return this.member.loading;
  }

  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    const of = this.#call();
    this.recording.add({ is: "txns", txns, ...of });
    const answered = this.member.txns(txns, options);
    return this.#watched(answered, of, (answers) => ({ is: "txns answered", answers, ...of }));
  }

  range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    const of = this.#call();
    this.recording.add({ is: "range", range, ...of });
    const answered = this.member.range(range, options);
    return this.#watched(answered, of, (answer) => ({ is: "range answered", answer, ...of }));
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return this.member.grant(leaseId, ttlSeconds, options);
  }

  revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    this.recording.add({ is: "revoke", leaseId, process: this.recording.process });
    return this.member.revoke(leaseId, options);
  }

  timeToLive(leaseId: bigint, options: TimeToLiveOptions): ReturnType<Member["timeToLive"]> {
    return this.member.timeToLive(leaseId, options);
  }

  authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    return this.member.authenticate(username, password, options);
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    return this.member.keepalive(handlers);
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const { recording } = this;
    const of = { process: recording.process, stream: recording.nextId() };
    const stream = this.member.watch({
      answer: (answer) => {
        recording.add({ is: "watch answered", answer, ...of });
        handlers.answer(answer);
      },
      ended: (error) => {
        recording.add({ is: "stream over", ...of });
        handlers.ended(error);
      },
    });
    return this.#recorded(stream, of);
  }

  failure(reason: string): Error {
    return this.member.failure(reason);
  }

  retire(): void {
    this.member.retire();
  }

  #recorded(stream: WatchStream, of: { readonly process: number; readonly stream: number }): WatchStream {
    const { recording } = this;
    return {
      create: (request) => {
        recording.add({ is: "watch", request, ...of });
        stream.create(request);
      },
      cancel: (watchId) => {
        recording.add({ is: "unwatch", watchId, ...of });
        stream.cancel(watchId);
      },
      probe: () => stream.probe(),
      close: () => {
        recording.add({ is: "stream over", ...of });
        stream.close();
      },
    };
  }

  #call() {
    return { process: this.recording.process, call: this.recording.nextId() };
  }

  /** Recorded before the client's own continuation runs, which is added later. */
  #watched<T>(
    answered: Promise<T>,
    of: { readonly process: number; readonly call: number },
    event: (answer: T) => OfProcessEvent,
  ): Promise<T> {
    answered.then(
      (answer) => this.recording.add(event(answer)),
      (error: unknown) => this.recording.add({ is: "failed", why: failureOf(error), ...of }),
    );
    return answered;
  }
}

function failureOf(error: unknown): Failure {
  const { inDoubt } = error as { inDoubt?: boolean };
  return { inDoubt: inDoubt === true, leaseGone: error instanceof LeaseNotFoundError };
}
