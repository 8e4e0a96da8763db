import type { LeaseAnswer, Range, Txn, WatchAnswer, WatchRequest } from "../../etcd/port.js";
import type { KvRequest } from "./kv.js";
import type { AuthStore } from "./users.js";

/** The etcd releases whose behavior is known: the newest patch release of each that the tests have. */
export type SimVersion = "3.4" | "3.5" | "3.6" | "3.7";

/** A rejection by etcd: its own text, `etcdserver: …`, and the gRPC code. Never an Error. */
export interface Refusal {
  readonly refused: string;
  readonly code: number;
}

/** As a member gets it. */
export type UnaryRequest = MemberRequest | (PortRequest & WithToken);

/** What the port asks of keys: the member makes a `kv` of it. */
type PortRequest =
  | { readonly kind: "txns"; readonly txns: readonly Txn[] }
  | { readonly kind: "range"; readonly range: Range };

/** As it is executed. */
export type MemberRequest = RequestBody & WithToken;

interface WithToken {
  /** The client's token; default: none. */
  readonly token?: string | undefined;
}

type RequestBody =
  /** As any client may send it. */
  | { readonly kind: "kv"; readonly request: KvRequest }
  | { readonly kind: "grant"; readonly leaseId: bigint; readonly ttlSeconds: number }
  | { readonly kind: "revoke"; readonly leaseId: bigint }
  | { readonly kind: "timeToLive"; readonly leaseId: bigint; readonly withoutKeys: boolean }
  | { readonly kind: "compact"; readonly revision: bigint }
  | { readonly kind: "authenticate"; readonly username: string; readonly password: string }
  | Administer;

/** Reads or edits users and roles, or what else has no entry in the log here. */
interface Administer {
  readonly kind: "administer";
  /** With authentication; "user" from 3.6 on only. */
  readonly needs: "root" | "user" | "nothing";
  /** The member answers from its own state, without a leader. */
  readonly isLocal: boolean;
  /** What needs root is allowed to a user whom it is about. */
  readonly isOwn: (username: string) => boolean;
  readonly run: (auth: AuthStore) => object;
}

/**
 * The answer types of src/etcd/port.ts: readonly TxnAnswer[], RangeAnswer, LeaseAnswer, LeaseAnswer with its keys. The
 * answers to a revoke and a compaction have a header only; that to `authenticate` is `{ token }`, and that to `kv` has a header and a
 * `KvAnswer` in `kv`.
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

/** etcd's rejections: the texts and codes of api/v3rpc/rpctypes/error.go. */

const UNKNOWN = 2;
const INVALID_ARGUMENT = 3;
const NOT_FOUND = 5;
const PERMISSION = 7;
const RESOURCE_EXHAUSTED = 8;
const FAILED_PRECONDITION = 9;
const OUT_OF_RANGE = 11;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;

const refusal = (code: number, text: string): Refusal => ({ refused: `etcdserver: ${text}`, code });

export const REQUEST_TOO_LARGE = refusal(INVALID_ARGUMENT, "request is too large");
export const EMPTY_KEY = refusal(INVALID_ARGUMENT, "key is not provided");
export const KEY_NOT_FOUND = refusal(INVALID_ARGUMENT, "key not found");
export const VALUE_PROVIDED = refusal(INVALID_ARGUMENT, "value is provided");
export const LEASE_PROVIDED = refusal(INVALID_ARGUMENT, "lease is provided");
export const INVALID_SORT = refusal(INVALID_ARGUMENT, "invalid sort option");
export const DUPLICATE_KEY = refusal(INVALID_ARGUMENT, "duplicate key given in txn request");
export const TOO_MANY_OPERATIONS = refusal(INVALID_ARGUMENT, "too many operations in txn request");
export const COMPACTED = refusal(OUT_OF_RANGE, "mvcc: required revision has been compacted");
export const FUTURE_REVISION = refusal(OUT_OF_RANGE, "mvcc: required revision is a future revision");
export const LEASE_NOT_FOUND = refusal(NOT_FOUND, "requested lease not found");
export const LEASE_EXISTS = refusal(FAILED_PRECONDITION, "lease already exists");
export const TTL_TOO_LARGE = refusal(OUT_OF_RANGE, "too large lease TTL");

export const BAD_TRANSFEREE = refusal(FAILED_PRECONDITION, "bad leader transferee");
export const NOT_LEADER = refusal(FAILED_PRECONDITION, "not leader");

/** The member knows no leader. */
export const NO_LEADER = refusal(UNAVAILABLE, "no leader");
export const LEADER_CHANGED = refusal(UNAVAILABLE, "leader changed");
export const TIMEOUT = refusal(UNAVAILABLE, "request timed out");
export const TIMEOUT_LEADER_FAILURE = refusal(
  UNAVAILABLE,
  "request timed out, possibly due to previous leader failure",
);
export const TIMEOUT_CONNECTION_LOST = refusal(
  UNAVAILABLE,
  "request timed out, possibly due to connection lost",
);
export const TIMEOUT_APPLIED_INDEX = refusal(
  UNAVAILABLE,
  "request timed out, waiting for the applied index took too long",
);
/** Errors of other packages of etcd pass with their own texts. */
export const PROPOSAL_DROPPED: Refusal = { refused: "raft proposal dropped", code: UNKNOWN };
export const NOT_PRIMARY: Refusal = { refused: "not a primary lessor", code: UNKNOWN };

export const isRefusal = (result: object | undefined): result is Refusal =>
  (result as Partial<Refusal> | undefined)?.refused !== undefined;

/** Of authentication and quota. */
export const NO_SPACE = refusal(RESOURCE_EXHAUSTED, "mvcc: database space exceeded");

export const INVALID_TOKEN = refusal(UNAUTHENTICATED, "invalid auth token");
export const OLD_REVISION = refusal(INVALID_ARGUMENT, "revision of auth store is old");
export const USER_EMPTY = refusal(INVALID_ARGUMENT, "user name is empty");
export const PERMISSION_DENIED = refusal(PERMISSION, "permission denied");
export const AUTH_DISABLED = refusal(FAILED_PRECONDITION, "authentication is not enabled");
export const WRONG_PASSWORD = refusal(INVALID_ARGUMENT, "authentication failed, invalid user ID or password");

export const ROLE_EMPTY = refusal(INVALID_ARGUMENT, "role name is empty");
export const USER_NOT_FOUND = refusal(FAILED_PRECONDITION, "user name not found");
export const USER_EXISTS = refusal(FAILED_PRECONDITION, "user name already exists");
export const ROLE_NOT_FOUND = refusal(FAILED_PRECONDITION, "role name not found");
export const ROLE_EXISTS = refusal(FAILED_PRECONDITION, "role name already exists");
export const ROLE_NOT_GRANTED = refusal(FAILED_PRECONDITION, "role is not granted to the user");
export const PERMISSION_NOT_GRANTED = refusal(FAILED_PRECONDITION, "permission is not granted to the role");
export const NO_ROOT_USER = refusal(FAILED_PRECONDITION, "root user does not exist");
export const NO_ROOT_ROLE = refusal(FAILED_PRECONDITION, "root user does not have root role");
export const INVALID_MANAGEMENT = refusal(INVALID_ARGUMENT, "invalid auth management");
