// How members are reached. Above this file everything knows `Member` only: no code but `memberOf` asks which transport is in
// use. And above it, all keys are relative to the prefix of the cluster (`PrefixedMember`): requests get it, answers lose it,
// and keys outside it are left out. Users see complete keys: `QueueEntry.completeKey`, `contenderAt`, `leaderOf`.
import type { CheckedConnect } from "../options/connect.js";
import type { Clock } from "../util/clock.js";
import { Etcd3Member } from "./etcd3/member.js";
import { GrpcMember } from "./http2/member.js";
import type {
  CallOptions,
  Compare,
  KeepaliveStream,
  KeyValue,
  LeaseAnswer,
  Member,
  MemberSetting,
  Operation,
  Range,
  RangeAnswer,
  StreamHandlers,
  TimeToLiveOptions,
  Txn,
  TxnAnswer,
  WatchAnswer,
  WatchRequest,
  WatchStream,
} from "./port.js";

type Key = string | Buffer;

/**
 * A member as the clients of one prefix see it, as by Go's package `clientv3/namespace`: its keys are those that begin with the
 * prefix, without it. Requests get the prefix, answers lose it, and other keys are left out of answers. Only a key that says of
 * itself that it is complete is sent and answered as it is.
 */
export class PrefixedMember implements Member {
  readonly #keys: KeyPrefix;

  constructor(
    private readonly member: Member,
    prefix: string,
  ) {
    this.#keys = new KeyPrefix(prefix);
  }

  get host(): string {
    return this.member.host;
  }

  get loading(): Promise<unknown> | undefined {
    return this.member.loading;
  }

  async txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    const keys = this.#keys;
    const answers = await this.member.txns(
      txns.map((txn) => keys.txn(txn)),
      options,
    );
    return answers.map((answer, n) => {
      const operations = answer.succeeded ? txns[n]?.success : txns[n]?.failure;
      const ranges = answer.ranges.map((range, i) =>
        range && !operations?.[i]?.complete ? { ...range, kvs: keys.kvs(range.kvs) } : range,
      );
      return { ...answer, ranges };
    });
  }

  async range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    const answer = await this.member.range(this.#keys.added(range), options);
    if (range.complete) return answer;
    return { ...answer, kvs: this.#keys.kvs(answer.kvs) };
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return this.member.grant(leaseId, ttlSeconds, options);
  }

  revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    return this.member.revoke(leaseId, options);
  }

  async timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    const answer = await this.member.timeToLive(leaseId, options);
    return { ...answer, keys: answer.keys.flatMap((key) => this.#keys.removed(key) ?? []) };
  }

  authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    return this.member.authenticate(username, password, options);
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    return this.member.keepalive(handlers);
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const keys = this.#keys;
    const stream = this.member.watch({
      answer: (answer) =>
        handlers.answer(answer.events.length === 0 ? answer : { ...answer, events: keys.events(answer) }),
      ended: (error) => handlers.ended(error),
    });
    return {
      create: (request: WatchRequest) => stream.create(keys.added(request)),
      cancel: (watchId) => stream.cancel(watchId),
      probe: () => stream.probe(),
      close: () => stream.close(),
    };
  }

  failure(reason: string): Error {
    return this.member.failure(reason);
  }

  retire(): void {
    this.member.retire();
  }
}

/** Adds a prefix to keys, and removes it. */
class KeyPrefix {
  readonly #bytes: Buffer;

  constructor(private readonly prefix: string) {
    this.#bytes = Buffer.from(prefix);
  }

  /** The same request for the complete key, and for the complete end of a range. */
  added<T extends { readonly key: Key; readonly end?: Key; readonly complete?: boolean }>(request: T): T {
    if (request.complete) return request;
    const key = this.#complete(request.key);
    return request.end === undefined
      ? { ...request, key }
      : { ...request, key, end: this.#complete(request.end) };
  }

  /** undefined: it does not begin with the prefix. */
  removed(key: Buffer): Buffer | undefined {
    const { length } = this.#bytes;
    const begins = key.length > length && key.compare(this.#bytes, 0, length, 0, length) === 0;
    return begins ? key.subarray(length) : undefined;
  }

  txn({ queues, compare, success, failure }: Txn): Txn {
    const operation = (each: Operation): Operation => this.added(each);
    return {
      queues,
      compare: compare.map((each): Compare => this.added(each)),
      success: success.map(operation),
      failure: failure.map(operation),
    };
  }

  kvs(kvs: readonly KeyValue[]): readonly KeyValue[] {
    return kvs.flatMap((kv) => this.#kv(kv) ?? []);
  }

  events({ events }: WatchAnswer): WatchAnswer["events"] {
    return events.flatMap(({ kind, kv }) => {
      const own = this.#kv(kv);
      return own ? [{ kind, kv: own }] : [];
    });
  }

  #kv(kv: KeyValue): KeyValue | undefined {
    const key = this.removed(kv.key);
    return key && { ...kv, key };
  }

  #complete(key: Key): Key {
    return typeof key === "string" ? this.prefix + key : Buffer.concat([this.#bytes, key]);
  }
}

interface MemberContext {
  readonly options: CheckedConnect;
  readonly clock: Clock;
}

/** A new connection to the member at `host`, over the transport and with the prefix that the options name. */
export function memberOf(host: string, setting: MemberSetting, context: MemberContext): Member {
  const member = memberOver(host, setting, context);
  const { prefix } = context.options;
  return prefix === "" ? member : new PrefixedMember(member, prefix);
}

function memberOver(host: string, setting: MemberSetting, context: MemberContext): Member {
  switch (context.options.transport) {
    case "etcd3":
      return new Etcd3Member(host, setting, context);
    case "http2":
      return new GrpcMember(host, setting, context);
  }
}
