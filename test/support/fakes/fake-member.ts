import { EtcdRefusedError } from "../../../src/errors.js";
import {
  type CallOptions,
  type Header,
  type KeepaliveStream,
  type KeyValue,
  type LeaseAnswer,
  type Member,
  type Range,
  type RangeAnswer,
  type StreamHandlers,
  type Txn,
  type TxnAnswer,
  UnansweredError,
  type WatchAnswer,
  type WatchEvent,
  type WatchRequest,
  type WatchStream,
} from "../../../src/etcd/port.js";
import type { Clock } from "../../../src/base/util/clock.js";

export type Method = "txn" | "batch" | "range" | "grant" | "revoke" | "timeToLive" | "authenticate";

/** A unary call that the test answers manually. Its time limit and its signal end it like a real one. */
export interface FakeCall {
  readonly method: Method;
  readonly request: unknown;
  readonly options: CallOptions;
  readonly sentAt: number;
  answer(answer: unknown): void;
  fail(error: Error): void;
}

export class FakeKeepalive implements KeepaliveStream {
  holdUp: string | undefined;
  /** Lease IDs in the order of the renewals sent. */
  readonly renewals: bigint[] = [];
  closed = false;

  constructor(
    private readonly header: Header,
    private readonly handlers: StreamHandlers<LeaseAnswer>,
    private readonly direct: boolean,
  ) {}

  /** The renewal of no lease, which distinguishes etcd from its proxy, is answered at once, as etcd does. */
  renew(leaseId: bigint): void {
    if (this.direct && leaseId === 0n) this.answer(0n, 0);
    else this.renewals.push(leaseId);
  }

  close(): void {
    this.closed = true;
  }

  /** The server's answer to the oldest renewal of `leaseId`. */
  answer(leaseId: bigint, ttlSeconds: number, header: Partial<Header> = {}): void {
    this.handlers.answer({ header: { ...this.header, ...header }, leaseId, ttlSeconds });
  }

  end(error: Error = new UnansweredError("the member ended the stream")): void {
    this.handlers.ended(error);
  }
}

const NOTHING = { created: false, cancelled: false, cancelReason: "", compacted: false, events: [] };

const covers = ({ key, end }: WatchRequest, at: Buffer): boolean =>
  end === undefined
    ? at.equals(Buffer.from(key))
    : at.compare(Buffer.from(key)) >= 0 && at.compare(Buffer.from(end)) < 0;

export class FakeWatch implements WatchStream {
  readonly creates: WatchRequest[] = [];
  readonly cancels: number[] = [];
  probes = 0;
  closed = false;

  constructor(
    private readonly header: Header,
    private readonly handlers: StreamHandlers<WatchAnswer>,
  ) {}

  create(request: WatchRequest): void {
    this.creates.push(request);
  }

  cancel(watchId: number): void {
    this.cancels.push(watchId);
  }

  probe(): void {
    this.probes++;
  }

  close(): void {
    this.closed = true;
  }

  answer(answer: Partial<WatchAnswer>, revision = this.header.revision): void {
    this.handlers.answer({ header: { ...this.header, revision }, watchId: -1, ...NOTHING, ...answer });
  }

  /** etcd has created the watch on `key`: it delivers events after `revision`. */
  created(key: string, revision: bigint): void {
    this.answer({ watchId: this.#idOf(key), created: true }, revision);
  }

  /** One revision deletes all `keys`: each watch reports those in its range, in this order and in one answer. */
  deleted(keys: string | readonly string[], revision: bigint): void {
    const deletions = [keys].flat().map((key): WatchEvent => {
      return { kind: "DELETE", kv: keyValue({ key, createRevision: 0n, modRevision: revision }) };
    });
    let reported = false;
    for (const create of this.creates) {
      const events = deletions.filter(({ kv }) => covers(create, kv.key));
      if (events.length === 0) continue;
      reported = true;
      this.answer({ watchId: create.watchId, events }, revision);
    }
    if (!reported) throw new Error(`nothing watches ${String(keys)}`);
  }

  end(error: Error = new UnansweredError("the member ended the stream")): void {
    this.handlers.ended(error);
  }

  #idOf(key: string): number {
    const request = this.creates.findLast((create) => create.key.toString() === key);
    if (!request) throw new Error(`nothing watches ${key}`);
    return request.watchId;
  }
}

/** A member without etcd, for races that cannot be provoked on a real one. */
export class FakeMember implements Member {
  loading: Promise<unknown> | undefined;
  readonly calls: FakeCall[] = [];
  readonly keepalives: FakeKeepalive[] = [];
  readonly watches: FakeWatch[] = [];
  retired = false;
  /** False: there is no connection, so nothing is sent. */
  reachable = true;
  /** False: the test itself answers the probe whether this is etcd itself. */
  direct = true;

  constructor(
    readonly host: string,
    private readonly clock: Clock,
    readonly header: Header,
    /** Called for every call when it is sent; may answer it synchronously. */
    private readonly onCall: (call: FakeCall, host: string) => void,
  ) {}

  /** One transaction is a call "txn" with a single answer; several are a call "batch" with a list of answers. */
  async txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    if (txns.length > 1) return this.#call("batch", txns, options);
    return [await this.#call<TxnAnswer>("txn", txns[0], options)];
  }

  range(request: Range, options: CallOptions): Promise<RangeAnswer> {
    return this.#call("range", request, options);
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return this.#call("grant", { leaseId, ttlSeconds }, options);
  }

  revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    return this.#call("revoke", leaseId, options);
  }

  timeToLive(leaseId: bigint, options: CallOptions): Promise<LeaseAnswer & { readonly keys: Buffer[] }> {
    return this.#call("timeToLive", leaseId, options);
  }

  authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    return this.#call("authenticate", { username, password }, options);
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): FakeKeepalive {
    const stream = new FakeKeepalive(this.header, handlers, this.direct);
    this.keepalives.push(stream);
    return stream;
  }

  watch(handlers: StreamHandlers<WatchAnswer>): FakeWatch {
    const stream = new FakeWatch(this.header, handlers);
    this.watches.push(stream);
    return stream;
  }

  failure(reason: string): Error {
    return new EtcdRefusedError("permission", this.host, reason);
  }

  retire(): void {
    this.retired = true;
  }

  of(method: Method): FakeCall[] {
    return this.calls.filter((call) => call.method === method);
  }

  #call<T>(method: Method, request: unknown, options: CallOptions): Promise<T> {
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        timer.cancel();
        reject(error);
      };
      const timer = this.clock.after(options.timeoutMs, () => fail(new UnansweredError("no answer in time")));
      options.signal?.addEventListener(
        "abort",
        () => fail(new UnansweredError("cancelled", { kind: "cancelled" })),
        { once: true },
      );
      const answer = (value: unknown): void => {
        timer.cancel();
        resolve(value as T);
      };
      const call = { method, request, options, sentAt: this.clock.now().monotonic, answer, fail };
      this.calls.push(call);
      if (this.reachable) options.onSent?.();
      this.onCall(call, this.host);
    });
  }
}

export function keyValue({
  key = "jobs/77",
  ...fields
}: Partial<Omit<KeyValue, "key">> & { key?: string }): KeyValue {
  return { value: "", createRevision: 1n, modRevision: 1n, leaseId: 0n, ...fields, key: Buffer.from(key) };
}
