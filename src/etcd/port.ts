/** The port: what the rest of the library needs from one etcd member. Everything specific to a transport stays behind it. */

export interface Header {
  /** The ID of the etcd cluster that answered. Each restore from a snapshot creates a new one. */
  readonly clusterId: string;
  readonly revision: bigint;
  readonly memberId: string;
  readonly raftTerm: bigint;
}

export interface KeyValue {
  /** Bytes: other clients may use keys that are not text. */
  readonly key: Buffer;
  readonly value: string;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly leaseId: bigint;
}

/** Where a key is. */
interface Place {
  /** The key, and the end of a range, are those in etcd: they do not get the prefix of the cluster, and the answer keeps it. */
  readonly complete?: boolean;
}

export interface Range extends Place {
  readonly key: string | Buffer;
  readonly end?: string | Buffer;
  /** Sorted by create revision. Default: by key. */
  readonly order?: "oldest first" | "newest first";
  readonly limit?: number;
  readonly maxCreateRevision?: bigint;
  /** Reads the state at this revision. etcd rejects a revision that it has compacted, or has not reached. Default: the present state. */
  readonly revision?: bigint;
  /** The values in the answer are empty. etcd 3.7 leaves the leases out as well (etcd-io/etcd#22209). */
  readonly keysOnly?: boolean;
  /** Answered by the member itself, from the state that it has reached, without the leader. */
  readonly serializable?: boolean;
}

export interface RangeAnswer {
  readonly header: Header;
  readonly kvs: readonly KeyValue[];
  readonly more: boolean;
  /** Number of keys in the whole range: etcd does not apply the create-revision filters to it. */
  readonly count: number;
}

export type Compare = Place &
  (
    | { readonly kind: "created at"; readonly key: string | Buffer; readonly revision: bigint }
    | { readonly kind: "modified at"; readonly key: string; readonly revision: bigint }
    | { readonly kind: "nothing in"; readonly key: string; readonly end: string }
    | { readonly kind: "value is"; readonly key: string; readonly value: string }
  );

export type Operation = Place &
  (
    | { readonly kind: "put"; readonly key: string; readonly value: string; readonly leaseId: bigint }
    | { readonly kind: "delete"; readonly key: string | Buffer }
    | ({ readonly kind: "range" } & Range)
  );

export interface Txn {
  /** The names of the queues whose keys the transaction reads or writes. */
  readonly queues: readonly string[];
  readonly compare: readonly Compare[];
  readonly success: readonly Operation[];
  readonly failure: readonly Operation[];
}

export interface TxnAnswer {
  readonly header: Header;
  readonly succeeded: boolean;
  /** One per operation of the branch taken; `undefined` for operations that are not ranges. */
  readonly ranges: readonly (Omit<RangeAnswer, "header"> | undefined)[];
}

export interface LeaseAnswer {
  readonly header: Header;
  readonly leaseId: bigint;
  /** Seconds; 0 or less: etcd has no such lease. */
  readonly ttlSeconds: number;
}

export interface CallOptions {
  /** After this time the attempt is cancelled and counts as unanswered. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Runs when the request is handed to an open connection: from then on it may be executed. */
  readonly onSent?: (() => void) | undefined;
}

export interface TimeToLiveOptions extends CallOptions {
  /** The answer lists no keys, and etcd checks no permission for them. */
  readonly withoutKeys?: boolean;
}

export interface WatchRequest {
  readonly watchId: number;
  readonly key: string | Buffer;
  readonly end?: string | Buffer;
  /** 0 means from now on. With any other revision events may be up to 100 ms late: etcd serves such a watch from a loop. */
  readonly startRevision: bigint;
  readonly events: EventKind | "ALL";
}

export type EventKind = "PUT" | "DELETE";

export interface WatchEvent {
  readonly kind: EventKind;
  readonly kv: KeyValue;
}

export interface WatchAnswer {
  readonly header: Header;
  /** -1 when etcd rejects a create. */
  readonly watchId: number;
  readonly created: boolean;
  readonly cancelled: boolean;
  readonly cancelReason: string;
  readonly compacted: boolean;
  readonly events: readonly WatchEvent[];
}

export interface StreamHandlers<Answer> {
  answer(answer: Answer): void;
  /** Called once, as the last call. Not called after `close()`. */
  ended(error: Error): void;
}

export interface KeepaliveStream {
  renew(leaseId: bigint): void;
  close(): void;
}

export interface WatchStream {
  create(request: WatchRequest): void;
  cancel(watchId: number): void;
  /** Requests an answer of any kind; it has `watchId` -1 and nothing else. */
  probe(): void;
  close(): void;
}

/** What a connection to a member needs besides its host. */
export interface ConnectionSetting {
  readonly token: () => string | undefined;
  readonly pingMs: number;
}

/** One connection to one member. A connection that failed is never used again: the next one is always new. */
export interface Member {
  readonly host: string;
  /** Set while the code that makes the calls is being loaded, which no time limit covers. Rejects if it is not installed. */
  readonly loading?: Promise<unknown> | undefined;
  /**
   * Sent in one request: all are applied, or none. Each of several is decided by the state before all of them, so none may
   * read or write what another one writes. Everything that they put has one revision, the header's.
   */
  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]>;
  range(range: Range, options: CallOptions): Promise<RangeAnswer>;
  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer>;
  revoke(leaseId: bigint, options: CallOptions): Promise<void>;
  timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }>;
  authenticate(username: string, password: string, options: CallOptions): Promise<string>;
  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream;
  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream;
  /** The error for a reason that was given inside a stream. */
  failure(reason: string): Error;
  /** Closes the connection as soon as no call and no stream uses it. */
  retire(): void;
}
