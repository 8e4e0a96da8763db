import type { Refusal } from "./types.js";

/** etcd's rejections: the texts and codes of api/v3rpc/rpctypes/error.go. */

const INVALID_ARGUMENT = 3;
const NOT_FOUND = 5;
const FAILED_PRECONDITION = 9;
const OUT_OF_RANGE = 11;
const UNKNOWN = 2;
const UNAVAILABLE = 14;

const refusal = (code: number, text: string): Refusal => ({ refused: `etcdserver: ${text}`, code });

export const EMPTY_KEY = refusal(INVALID_ARGUMENT, "key is not provided");
export const DUPLICATE_KEY = refusal(INVALID_ARGUMENT, "duplicate key given in txn request");
export const TOO_MANY_OPERATIONS = refusal(INVALID_ARGUMENT, "too many operations in txn request");
export const COMPACTED = refusal(OUT_OF_RANGE, "mvcc: required revision has been compacted");
export const FUTURE_REVISION = refusal(OUT_OF_RANGE, "mvcc: required revision is a future revision");
export const LEASE_NOT_FOUND = refusal(NOT_FOUND, "requested lease not found");
export const LEASE_EXISTS = refusal(FAILED_PRECONDITION, "lease already exists");
export const TTL_TOO_LARGE = refusal(OUT_OF_RANGE, "too large lease TTL");

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
