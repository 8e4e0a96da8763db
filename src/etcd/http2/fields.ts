/**
 * The fields that the port needs, by their names in etcd's rpc.proto and kv.proto. Each is the number that precedes the field
 * in a message: its field number, shifted, and its wire type (protobuf encoding, "Message Structure").
 */

export const VARINT = 0;
export const FIXED64 = 1;
export const LENGTH_DELIMITED = 2;
export const FIXED32 = 5;

/** int64, uint64, bool or an enum. */
const integer = (field: number): number => (field << 3) | VARINT;
/** bytes, string, a message, or a packed list. */
const delimited = (field: number): number => (field << 3) | LENGTH_DELIMITED;

/** All of etcd's responses have their header in this field. */
export const RESPONSE_HEADER = delimited(1);
export const HEADER = {
  cluster_id: integer(1),
  member_id: integer(2),
  revision: integer(3),
  raft_term: integer(4),
} as const;

export const KEY_VALUE = {
  key: delimited(1),
  create_revision: integer(2),
  mod_revision: integer(3),
  value: delimited(5),
  lease: integer(6),
} as const;

export const RANGE_REQUEST = {
  key: delimited(1),
  range_end: delimited(2),
  limit: integer(3),
  revision: integer(4),
  sort_order: integer(5),
  sort_target: integer(6),
  serializable: integer(7),
  keys_only: integer(8),
  max_create_revision: integer(13),
} as const;
export const RANGE_RESPONSE = { kvs: delimited(2), more: integer(3), count: integer(4) } as const;

export const PUT_REQUEST = { key: delimited(1), value: delimited(2), lease: integer(3) } as const;
export const DELETE_RANGE_REQUEST = { key: delimited(1) } as const;

export const COMPARE = {
  result: integer(1),
  target: integer(2),
  key: delimited(3),
  create_revision: integer(5),
  mod_revision: integer(6),
  value: delimited(7),
  range_end: delimited(64),
} as const;
export const TXN_REQUEST = { compare: delimited(1), success: delimited(2), failure: delimited(3) } as const;
export const REQUEST_OP = {
  request_range: delimited(1),
  request_put: delimited(2),
  request_delete_range: delimited(3),
  request_txn: delimited(4),
} as const;
export const TXN_RESPONSE = { succeeded: integer(2), responses: delimited(3) } as const;
export const RESPONSE_OP = { response_range: delimited(1), response_txn: delimited(4) } as const;

export const LEASE_GRANT_REQUEST = { TTL: integer(1), ID: integer(2) } as const;
export const LEASE_REVOKE_REQUEST = { ID: integer(1) } as const;
export const LEASE_KEEP_ALIVE_REQUEST = { ID: integer(1) } as const;
export const LEASE_TIME_TO_LIVE_REQUEST = { ID: integer(1), keys: integer(2) } as const;
/** The responses to a grant, a keepalive and a question for the time to live; only the last one has keys. */
export const LEASE_RESPONSE = { ID: integer(2), TTL: integer(3), keys: delimited(5) } as const;

export const MEMBER_LIST_RESPONSE = { members: delimited(2) } as const;
export const MEMBER = { clientURLs: delimited(4), isLearner: integer(5) } as const;

export const AUTHENTICATE_REQUEST = { name: delimited(1), password: delimited(2) } as const;
export const AUTHENTICATE_RESPONSE = { token: delimited(2) } as const;

export const WATCH_REQUEST = {
  create_request: delimited(1),
  cancel_request: delimited(2),
  progress_request: delimited(3),
} as const;
export const WATCH_CREATE_REQUEST = {
  key: delimited(1),
  range_end: delimited(2),
  start_revision: integer(3),
  filters: delimited(5),
  watch_id: integer(7),
} as const;
export const WATCH_CANCEL_REQUEST = { watch_id: integer(1) } as const;
export const WATCH_RESPONSE = {
  watch_id: integer(2),
  created: integer(3),
  canceled: integer(4),
  compact_revision: integer(5),
  cancel_reason: delimited(6),
  events: delimited(11),
} as const;
export const EVENT = { type: integer(1), kv: delimited(2) } as const;

/** The enums of rpc.proto and kv.proto, as far as the port needs them. */
export const COMPARE_RESULT = { Less: 2 } as const;
export const COMPARE_TARGET = { Create: 1, Mod: 2, Value: 3 } as const;
export const SORT_ORDER = { Ascend: 1, Descend: 2 } as const;
export const SORT_TARGET_CREATE = 2;
export const FILTER = { Noput: 0, Nodelete: 1 } as const;
export const EVENT_DELETE = 1;
