import type { LeaseAnswer, Range, Txn, WatchAnswer, WatchRequest } from "../../../src/etcd/port.js";

/** The etcd releases whose behavior is known: the newest patch release of each that the tests have. */
export type SimVersion = "3.4" | "3.5" | "3.6" | "3.7";

/** A rejection by etcd: its own text, `etcdserver: …`, and the gRPC code. Never an Error. */
export interface Refusal {
  readonly refused: string;
  readonly code: number;
}

export type UnaryRequest = RequestBody & {
  /** The client's token; default: none. */
  readonly token?: string | undefined;
};

type RequestBody =
  | { readonly kind: "txns"; readonly txns: readonly Txn[] }
  | { readonly kind: "range"; readonly range: Range }
  | { readonly kind: "grant"; readonly leaseId: bigint; readonly ttlSeconds: number }
  | { readonly kind: "revoke"; readonly leaseId: bigint }
  | { readonly kind: "timeToLive"; readonly leaseId: bigint; readonly withoutKeys: boolean }
  | { readonly kind: "compact"; readonly revision: bigint }
  | { readonly kind: "authenticate"; readonly username: string; readonly password: string };

/**
 * The answer types of src/etcd/port.ts: readonly TxnAnswer[], RangeAnswer, LeaseAnswer, LeaseAnswer with its keys. The
 * answers to a revoke and a compaction have a header only; that to `authenticate` is `{ token }`.
 */
export type UnaryReply = Refusal | { readonly answer: unknown };

export interface ServerStream<Command> {
  send(command: Command): void;
  close(): void;
}

export type WatchCommand =
  { readonly create: WatchRequest } | { readonly cancel: number } | { readonly probe: true };

/** What a stream is opened with. */
export interface StreamMetadata {
  /** `hasleader: true`: the member ends the stream if it knows no leader for some seconds. */
  readonly requiresLeader?: boolean;
  /** The client's token, for as long as the stream lives; default: none. */
  readonly token?: string | undefined;
}

/** One member, as a connection sees it. `reply` and `out` are called later or immediately, never after `close()`. */
export interface SimServer {
  readonly host: string;
  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void;
  /** A refusal ends the stream. */
  keepalive(out: (answer: LeaseAnswer | Refusal) => void, metadata?: StreamMetadata): ServerStream<bigint>;
  watch(out: (answer: WatchAnswer | Refusal) => void, metadata?: StreamMetadata): ServerStream<WatchCommand>;
}
