/** The port: what the rest of the library asks of one etcd member. Everything that is etcd3's stays behind it. */

export interface Header {
  readonly revision: bigint;
  readonly memberId: string;
  readonly raftTerm: bigint;
}

export interface KeyValue {
  /** Bytes: other clients may use keys that are no text. */
  readonly key: Buffer;
  readonly value: string;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly leaseId: bigint;
}

export interface Range {
  readonly key: string | Buffer;
  readonly end?: string;
  /** By create revision. */
  readonly order?: "oldest first" | "newest first";
  readonly limit?: number;
  readonly maxCreateRevision?: bigint;
  /** Answered by the member asked, as far as it has got, without the leader. */
  readonly serializable?: boolean;
}

export interface RangeAnswer {
  readonly header: Header;
  readonly kvs: readonly KeyValue[];
  readonly more: boolean;
  /** Of the whole range: etcd does not apply the create-revision filters to it. */
  readonly count: number;
}

export type Compare =
  | { readonly kind: "created at"; readonly key: string | Buffer; readonly revision: bigint }
  | { readonly kind: "modified at"; readonly key: string; readonly revision: bigint }
  | { readonly kind: "nothing in"; readonly key: string; readonly end: string }
  | { readonly kind: "value is"; readonly key: string; readonly value: string };

export type Operation =
  | { readonly kind: "put"; readonly key: string; readonly value: string; readonly leaseId: bigint }
  | { readonly kind: "delete"; readonly key: string | Buffer }
  | ({ readonly kind: "range" } & Range);

export interface Txn {
  /** The names of the queues whose keys it reads or writes. */
  readonly roots: readonly string[];
  readonly when: readonly Compare[];
  readonly then: readonly Operation[];
  readonly otherwise: readonly Operation[];
}

export interface TxnAnswer {
  readonly header: Header;
  readonly succeeded: boolean;
  /** One per operation of the branch taken; only ranges say anything. */
  readonly ranges: readonly (Omit<RangeAnswer, "header"> | undefined)[];
}

export interface LeaseAnswer {
  readonly header: Header;
  readonly leaseId: bigint;
  /** Seconds; 0 or less = there is no such lease. */
  readonly ttlSeconds: number;
}

export interface CallOptions {
  /** The attempt is cancelled and counts as unanswered after this time. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** The member did not answer, or not usably: what was asked may have been done, or may yet be. */
export class UnansweredError extends Error {
  override readonly name: string = "UnansweredError";
}

/** Carries the host of a failed attempt to where all attempts are judged. */
export class AttemptError extends Error {
  constructor(
    readonly host: string,
    readonly why: Error,
  ) {
    super(why.message);
  }
}

/** It waited for its sending until nobody wanted it any more: nothing was done. */
export class NotSentError extends Error {
  override readonly name = "NotSentError";
}

/** We did not wait for the answer: no verdict on the member. */
export class CancelledError extends UnansweredError {
  override readonly name = "CancelledError";
}

/** etcd says that the lease is not there: an answer, not a failure. */
export class LeaseNotFoundError extends Error {
  override readonly name = "LeaseNotFoundError";
}

/** etcd says that the lease ID is taken: an earlier grant of ours got through. */
export class LeaseExistsError extends Error {
  override readonly name = "LeaseExistsError";
}

/** etcd does not accept the token any more: get a new one and ask again. */
export class TokenExpiredError extends Error {
  override readonly name = "TokenExpiredError";
}

/** Did etcd say no to what was asked in this attempt? Then nothing of it was done. */
export const refused = (error: unknown): boolean =>
  error instanceof AttemptError &&
  !(error.why instanceof UnansweredError) &&
  !(error.why instanceof TokenExpiredError);

export interface WatchRequest {
  readonly watchId: number;
  readonly key: string | Buffer;
  readonly end?: string;
  /** 0 = from now. Anything else may deliver up to 100 ms late: etcd serves such a watch from a loop. */
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
  /** -1 when a create was refused. */
  readonly watchId: number;
  readonly created: boolean;
  readonly cancelled: boolean;
  readonly cancelReason: string;
  readonly compacted: boolean;
  readonly events: readonly WatchEvent[];
}

export interface StreamHandlers<Answer> {
  answer(answer: Answer): void;
  /** Once, after which nothing comes. Not called after `close()`. */
  ended(error: Error): void;
}

export interface KeepaliveStream {
  renew(leaseId: bigint): void;
  close(): void;
}

export interface WatchStream {
  create(request: WatchRequest): void;
  cancel(watchId: number): void;
  /** Asks for an answer of any kind; it comes with `watchId` -1 and nothing else. */
  probe(): void;
  close(): void;
}

/** One connection to one member. A member that failed is never used again: "next" is always a new one. */
export interface Member {
  readonly host: string;
  /**
   * In one request: all are applied, or none. With several, every one is decided by the state before all of them, so none
   * may read or write what another one writes; and what they put has one revision, the header's.
   */
  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]>;
  range(range: Range, options: CallOptions): Promise<RangeAnswer>;
  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer>;
  revoke(leaseId: bigint, options: CallOptions): Promise<void>;
  timeToLive(
    leaseId: bigint,
    options: CallOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }>;
  authenticate(username: string, password: string, options: CallOptions): Promise<string>;
  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream;
  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream;
  /** What a reason given inside a stream means. */
  failure(reason: string): Error;
  /** Closes the connection as soon as no call and no stream uses it. */
  retire(): void;
}
