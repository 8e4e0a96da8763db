import { EtcdRefusedError, type RefusalReason } from "../errors.js";
import type { CheckedCredentials } from "../base/options/connect.js";
import type { Clock } from "../base/util/clock.js";

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

export interface Range {
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

export type Compare =
  | { readonly kind: "created at"; readonly key: string | Buffer; readonly revision: bigint }
  | { readonly kind: "modified at"; readonly key: string; readonly revision: bigint }
  | { readonly kind: "nothing in"; readonly key: string; readonly end: string }
  /** Each key of the range was created at `revision` or before. */
  | {
      readonly kind: "nothing since";
      readonly key: string;
      readonly end: string;
      readonly revision: bigint;
    }
  | { readonly kind: "value is"; readonly key: string; readonly value: string };

export type Operation =
  | { readonly kind: "put"; readonly key: string; readonly value: string; readonly leaseId: bigint }
  | { readonly kind: "delete"; readonly key: string | Buffer }
  | ({ readonly kind: "range" } & Range);

export interface Txn {
  /** The paths of the queues whose keys the transaction reads or writes. */
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

/** etcd's list of the members of its cluster. A member that was added and has not started yet has no URLs. */
export interface MembersAnswer {
  readonly header: Header;
  readonly members: readonly { readonly clientUrls: readonly string[]; readonly isLearner: boolean }[];
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
  /** What keeps the stream from being opened, although there is a connection. Undefined: nothing that is known. */
  readonly holdUp?: string | undefined;
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
export interface MemberSetting {
  readonly token: () => string | undefined;
  /** Read for each connection anew. Without them TLS trusts the authorities that Node.js trusts. */
  readonly credentials?: (() => CheckedCredentials) | undefined;
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
  /** As the member itself knows it, without the leader. Only the transport "http2" has it. */
  members?(options: CallOptions): Promise<MembersAnswer>;
  authenticate(username: string, password: string, options: CallOptions): Promise<string>;
  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream;
  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream;
  /** The error for a reason that was given inside a stream. */
  failure(reason: string): Error;
  /** Closes the connection as soon as no call and no stream uses it. */
  retire(): void;
}

/** The errors with which an attempt on one member ends. `retry` decides which of them another attempt may fix. */

interface MemberErrorOptions {
  readonly host?: string | undefined;
  readonly cause?: unknown;
  readonly inDoubt?: boolean | undefined;
}

/** Another attempt may have another outcome: on another member, or later. */
export abstract class MemberError extends Error {
  /** The host of the attempt; undefined as long as this is not the outcome of one. */
  host: string | undefined;
  /** The request may have been executed, or may yet be; otherwise it never left this process, or etcd says that it was not. */
  readonly inDoubt: boolean;

  constructor(message: string, options: MemberErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.host = options.host;
    this.inDoubt = options.inDoubt ?? false;
  }
}

/**
 * What is known of a missing answer:
 * - "unreachable": the host rejects connections, or its name has no address: an answer of its operating system or of the name
 *   service, not silence. The request was not sent.
 * - "turned away": the host has asked for a certificate of the client, and closed the connection. Where no host has ever
 *   answered, the certificate is the reason; later, a balancer may have lost its members. By default the request was not sent.
 * - "cancelled": the caller stopped waiting for the answer: this says nothing about the member.
 * - "calm": the member, or a proxy in front of it, demands fewer pings and drops calls that etcd may have executed.
 */
type UnansweredKind = "unreachable" | "turned away" | "cancelled" | "calm";

/** Users see them in the JSON form of their errors. */
const NAMES: Readonly<Record<UnansweredKind, string>> = {
  unreachable: "UnreachableError",
  "turned away": "TurnedAwayError",
  cancelled: "CancelledError",
  calm: "TooManyPingsError",
};

/** No usable answer, or a transient rejection: another member may answer. By default in doubt, unless the request was not sent. */
export class UnansweredError extends MemberError {
  override readonly name: string;
  readonly kind: UnansweredKind | undefined;

  constructor(message: string, options: MemberErrorOptions & { readonly kind?: UnansweredKind } = {}) {
    const { kind } = options;
    super(message, {
      ...options,
      inDoubt: options.inDoubt ?? !(kind === "unreachable" || kind === "turned away"),
    });
    this.kind = kind;
    this.name = kind === undefined ? "UnansweredError" : NAMES[kind];
  }
}

/**
 * Waits for an answer that several calls wait for. The limits of this call end its own wait, not the request. `late` makes the error
 * of its time limit.
 */
export function shared<T>(
  answer: Promise<T>,
  { timeoutMs, signal }: CallOptions,
  { clock, late }: { readonly clock: Clock; readonly late: () => Error },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void): void => {
      timer.cancel();
      signal?.removeEventListener("abort", onAbort);
      settle();
    };
    const onAbort = (): void => end(() => reject(gaveUp(false)));
    const timer = clock.after(timeoutMs, () => end(() => reject(late())));
    signal?.addEventListener("abort", onAbort, { once: true });
    answer.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    );
  });
}

/** The caller gave up. `inDoubt`: after the request was sent. */
export const gaveUp = (inDoubt: boolean, host?: string): UnansweredError =>
  new UnansweredError("the caller gave up", { kind: "cancelled", inDoubt, host });

/** The caller gave up before the request was sent: nothing was executed. */
export class NotSentError extends Error {
  override readonly name = "NotSentError";
}

/** Only this member, or a server in its place, rejects the request, for `reason`: another member may accept it. */
export class MemberRefusedError extends MemberError {
  override readonly name = "MemberRefusedError";

  /** `inDoubt`: the rejection is not etcd's own, so the request may have been executed behind a proxy. */
  constructor(
    readonly reason: RefusalReason,
    details: string,
    options: MemberErrorOptions,
  ) {
    super(details, options);
  }
}

/**
 * This member has applied far less than is committed (etcd compares its own two indexes) and did not start the request: repeat
 * it on another member. If there is no other, repeat it later on the same connection, as a new one would add to the load.
 */
export class OverloadedError extends MemberError {
  override readonly name = "OverloadedError";
}

/** etcd does not accept the token, or requires one: get a new one and repeat the request. Nothing was executed. */
export class TokenExpiredError extends MemberError {
  override readonly name = "TokenExpiredError";
}

/** etcd has no such lease: an answer, not a failure. */
export class LeaseNotFoundError extends Error {
  override readonly name = "LeaseNotFoundError";
}

/** The lease ID is taken: an earlier grant of this client was executed. */
export class LeaseExistsError extends Error {
  override readonly name = "LeaseExistsError";
}

/** Authentication is off: calls need no token. */
export class AuthDisabledError extends Error {
  override readonly name = "AuthDisabledError";
}

/** A verdict that is the answer to some requests. Of any other request it is not etcd's. */
export type AnswerKind = "lease" | "lease exists" | "quota";

/** etcd gives no such verdict to a request that has only these answers: another server has, in its place. */
export function notEtcds(error: unknown, answers: readonly AnswerKind[], host: string): unknown {
  const kind = answerKindOf(error);
  if (kind === undefined || answers.some((each) => each === kind)) return error;
  const { message } = error as Error;
  const details = error instanceof EtcdRefusedError ? error.details : message;
  return new MemberRefusedError("member", `an answer to another request: ${details}`, {
    host,
    inDoubt: true,
  });
}

function answerKindOf(error: unknown): AnswerKind | "never" | undefined {
  if (error instanceof LeaseNotFoundError) return "lease";
  if (error instanceof LeaseExistsError) return "lease exists";
  if (error instanceof AuthDisabledError) return "never";
  return error instanceof EtcdRefusedError && error.reason === "quota" ? "quota" : undefined;
}

/** Whether etcd rejected the request of this attempt. */
export const refused = (error: unknown): boolean =>
  error instanceof EtcdRefusedError ||
  error instanceof LeaseNotFoundError ||
  error instanceof LeaseExistsError;

/** Whether the request of this attempt may have been executed. */
export const inDoubt = (error: unknown): boolean =>
  (error instanceof MemberError || error instanceof EtcdRefusedError) && error.inDoubt;
