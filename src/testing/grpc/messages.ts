// The messages of etcd's rpc.proto, kv.proto and auth.proto that its clients use, as tables for `codec.ts`.
import type { Message } from "./codec.js";

export interface HeaderMessage {
  readonly clusterId?: bigint;
  readonly memberId?: bigint;
  readonly revision?: bigint;
  readonly raftTerm?: bigint;
}

const HEADER: Message<HeaderMessage> = {
  clusterId: [1, "uint64"],
  memberId: [2, "uint64"],
  revision: [3, "int64"],
  raftTerm: [4, "uint64"],
};
/** All of etcd's answers begin with it. */
export const header = [1, () => HEADER] as const;

/** An answer that may leave out what has its default. */
export interface Answer {
  readonly header?: HeaderMessage;
}

export interface KeyValueMessage {
  readonly key: Buffer;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly version: bigint;
  readonly value: Buffer;
  readonly leaseId: bigint;
}

export const KEY_VALUE: Message<KeyValueMessage> = {
  key: [1, "bytes"],
  createRevision: [2, "int64"],
  modRevision: [3, "int64"],
  version: [4, "int64"],
  value: [5, "bytes"],
  leaseId: [6, "int64"],
};

export const EMPTY: Message = {};
export const HEADER_ONLY: Message<Answer> = { header };

/** KV. */

export interface RangeRequest {
  readonly key: Buffer;
  readonly end?: Buffer;
  readonly limit: bigint;
  readonly revision: bigint;
  readonly order: number;
  readonly target: number;
  readonly serializable: boolean;
  readonly keysOnly: boolean;
  readonly countOnly: boolean;
  readonly minModRevision: bigint;
  readonly maxModRevision: bigint;
  readonly minCreateRevision: bigint;
  readonly maxCreateRevision: bigint;
}

export const RANGE_REQUEST: Message<RangeRequest> = {
  key: [1, "bytes"],
  end: [2, "bytes", "optional"],
  limit: [3, "int64"],
  revision: [4, "int64"],
  order: [5, "number"],
  target: [6, "number"],
  serializable: [7, "bool"],
  keysOnly: [8, "bool"],
  countOnly: [9, "bool"],
  minModRevision: [10, "int64"],
  maxModRevision: [11, "int64"],
  minCreateRevision: [12, "int64"],
  maxCreateRevision: [13, "int64"],
};

export interface PutRequest {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly leaseId: bigint;
  readonly previous: boolean;
  readonly ignoreValue: boolean;
  readonly ignoreLease: boolean;
}

export const PUT_REQUEST: Message<PutRequest> = {
  key: [1, "bytes"],
  value: [2, "bytes"],
  leaseId: [3, "int64"],
  previous: [4, "bool"],
  ignoreValue: [5, "bool"],
  ignoreLease: [6, "bool"],
};

export interface DeletionRequest {
  readonly key: Buffer;
  readonly end?: Buffer;
  readonly previous: boolean;
}

export const DELETION_REQUEST: Message<DeletionRequest> = {
  key: [1, "bytes"],
  end: [2, "bytes", "optional"],
  previous: [3, "bool"],
};

export interface CompareMessage {
  readonly result: number;
  readonly target: number;
  readonly key: Buffer;
  readonly version: bigint;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly value: Buffer;
  readonly leaseId: bigint;
  readonly end?: Buffer;
}

const COMPARE: Message<CompareMessage> = {
  result: [1, "number"],
  target: [2, "number"],
  key: [3, "bytes"],
  version: [4, "int64"],
  createRevision: [5, "int64"],
  modRevision: [6, "int64"],
  value: [7, "bytes"],
  leaseId: [8, "int64"],
  end: [64, "bytes", "optional"],
};

export interface OperationMessage {
  readonly range?: RangeRequest;
  readonly put?: PutRequest;
  readonly deletion?: DeletionRequest;
  readonly txn?: TxnRequest;
}

const OPERATION: Message<OperationMessage> = {
  range: [1, () => RANGE_REQUEST],
  put: [2, () => PUT_REQUEST],
  deletion: [3, () => DELETION_REQUEST],
  txn: [4, () => TXN_REQUEST],
};

export interface TxnRequest {
  readonly compare: readonly CompareMessage[];
  readonly success: readonly OperationMessage[];
  readonly failure: readonly OperationMessage[];
}

export const TXN_REQUEST: Message<TxnRequest> = {
  compare: [1, () => COMPARE, "repeated"],
  success: [2, () => OPERATION, "repeated"],
  failure: [3, () => OPERATION, "repeated"],
};

export interface RangeResponse extends Answer {
  readonly kvs: readonly KeyValueMessage[];
  readonly more: boolean;
  readonly count: number;
}

export const RANGE_RESPONSE: Message<RangeResponse> = {
  header,
  kvs: [2, () => KEY_VALUE, "repeated"],
  more: [3, "bool"],
  count: [4, "number"],
};

export interface PutResponse extends Answer {
  readonly previous?: KeyValueMessage | undefined;
}

export const PUT_RESPONSE: Message<PutResponse> = { header, previous: [2, () => KEY_VALUE] };

export interface DeletionResponse extends Answer {
  readonly deleted: number;
  readonly previous: readonly KeyValueMessage[];
}

export const DELETION_RESPONSE: Message<DeletionResponse> = {
  header,
  deleted: [2, "number"],
  previous: [3, () => KEY_VALUE, "repeated"],
};

export interface AnswerMessage {
  readonly range?: RangeResponse;
  readonly put?: PutResponse;
  readonly deletion?: DeletionResponse;
  readonly txn?: TxnResponse;
}

const ANSWER: Message<AnswerMessage> = {
  range: [1, () => RANGE_RESPONSE],
  put: [2, () => PUT_RESPONSE],
  deletion: [3, () => DELETION_RESPONSE],
  txn: [4, () => TXN_RESPONSE],
};

export interface TxnResponse extends Answer {
  readonly succeeded: boolean;
  readonly answers: readonly AnswerMessage[];
}

export const TXN_RESPONSE: Message<TxnResponse> = {
  header,
  succeeded: [2, "bool"],
  answers: [3, () => ANSWER, "repeated"],
};

export const COMPACTION_REQUEST: Message<{ readonly revision: bigint }> = { revision: [1, "int64"] };

/** Lease. */

export interface LeaseRequest {
  readonly ttlSeconds: bigint;
  readonly leaseId: bigint;
}

export const GRANT_REQUEST: Message<LeaseRequest> = { ttlSeconds: [1, "int64"], leaseId: [2, "int64"] };
/** To revoke it, or to renew it. */
export const LEASE_REQUEST: Message<Pick<LeaseRequest, "leaseId">> = { leaseId: [1, "int64"] };
export const TIME_TO_LIVE_REQUEST: Message<Pick<LeaseRequest, "leaseId"> & { readonly keys: boolean }> = {
  leaseId: [1, "int64"],
  keys: [2, "bool"],
};

export interface LeaseResponse extends Answer {
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  readonly grantedSeconds?: number;
  readonly keys?: readonly Buffer[];
}

/** To a grant, a renewal, or a question for the time to live. */
export const LEASE_RESPONSE: Message<LeaseResponse> = {
  header,
  leaseId: [2, "int64"],
  ttlSeconds: [3, "number"],
  grantedSeconds: [4, "number"],
  keys: [5, "bytes", "repeated"],
};

const LEASE_STATUS: Message<{ readonly leaseId: bigint }> = { leaseId: [1, "int64"] };
export const LEASES_RESPONSE: Message<Answer & { readonly leases: readonly { readonly leaseId: bigint }[] }> =
  {
    header,
    leases: [2, () => LEASE_STATUS, "repeated"],
  };

/** Watch. */

export interface WatchCreation {
  readonly key: Buffer;
  readonly end?: Buffer;
  readonly startRevision: bigint;
  readonly filters: readonly number[];
  readonly previous: boolean;
  readonly watchId: bigint;
  readonly fragment: boolean;
}

const WATCH_CREATION: Message<WatchCreation> = {
  key: [1, "bytes"],
  end: [2, "bytes", "optional"],
  startRevision: [3, "int64"],
  filters: [5, "number", "repeated"],
  previous: [6, "bool"],
  watchId: [7, "int64"],
  fragment: [8, "bool"],
};

const WATCH_CANCEL: Message<{ readonly watchId: bigint }> = { watchId: [1, "int64"] };

export interface WatchMessage {
  readonly create?: WatchCreation;
  readonly cancel?: { readonly watchId: bigint };
  readonly progress?: object;
}

export const WATCH_REQUEST: Message<WatchMessage> = {
  create: [1, () => WATCH_CREATION],
  cancel: [2, () => WATCH_CANCEL],
  progress: [3, () => EMPTY],
};

export interface EventMessage {
  readonly type: number;
  readonly kv: KeyValueMessage;
  readonly previous: KeyValueMessage | undefined;
}

const EVENT: Message<EventMessage> = {
  type: [1, "number"],
  kv: [2, () => KEY_VALUE],
  previous: [3, () => KEY_VALUE],
};

export interface WatchResponse extends Answer {
  readonly watchId: number;
  readonly created: boolean;
  readonly cancelled: boolean;
  readonly compactRevision: bigint;
  readonly cancelReason: string;
  readonly fragment?: boolean;
  readonly events: readonly EventMessage[];
}

export const WATCH_RESPONSE: Message<WatchResponse> = {
  header,
  watchId: [2, "number"],
  created: [3, "bool"],
  cancelled: [4, "bool"],
  compactRevision: [5, "int64"],
  cancelReason: [6, "text"],
  fragment: [7, "bool"],
  events: [11, () => EVENT, "repeated"],
};

/** Auth. */

export interface UserRequest {
  readonly name: string;
  readonly password: string;
  readonly options?: { readonly noPassword: boolean };
}

const USER_OPTIONS: Message<{ readonly noPassword: boolean }> = { noPassword: [1, "bool"] };
/** Adds a user, or changes the password of one, or logs one in. */
export const USER_REQUEST: Message<UserRequest> = {
  name: [1, "text"],
  password: [2, "text"],
  options: [3, () => USER_OPTIONS],
};
/** A request that names a user or a role. */
export const NAME_REQUEST: Message<{ readonly name: string }> = { name: [1, "text"] };
export const USER_ROLE_REQUEST: Message<{ readonly name: string; readonly role: string }> = {
  name: [1, "text"],
  role: [2, "text"],
};

export interface PermissionMessage {
  /** 0: read, 1: write, 2: both. */
  readonly type: number;
  readonly key: Buffer;
  readonly end: Buffer;
}

const PERMISSION: Message<PermissionMessage> = {
  type: [1, "number"],
  key: [2, "bytes"],
  end: [3, "bytes"],
};

export const GRANT_PERMISSION_REQUEST: Message<{
  readonly name: string;
  readonly permission?: PermissionMessage;
}> = { name: [1, "text"], permission: [2, () => PERMISSION] };
export const REVOKE_PERMISSION_REQUEST: Message<{
  readonly name: string;
  readonly key: Buffer;
  readonly end: Buffer;
}> = { name: [1, "text"], key: [2, "bytes"], end: [3, "bytes"] };

export const NAMES_RESPONSE: Message<Answer & { readonly names: readonly string[] }> = {
  header,
  names: [2, "text", "repeated"],
};
export const PERMISSIONS_RESPONSE: Message<Answer & { readonly permissions: readonly PermissionMessage[] }> =
  {
    header,
    permissions: [2, () => PERMISSION, "repeated"],
  };
export const TOKEN_RESPONSE: Message<Answer & { readonly token: string }> = { header, token: [2, "text"] };
export const AUTH_STATUS_RESPONSE: Message<
  Answer & { readonly enabled: boolean; readonly revision: number }
> = {
  header,
  enabled: [2, "bool"],
  revision: [3, "number"],
};

/** Cluster and Maintenance. */

export interface MemberMessage {
  readonly memberId: bigint;
  readonly name: string;
  readonly peerUrls: readonly string[];
  readonly clientUrls: readonly string[];
}

const MEMBER: Message<MemberMessage> = {
  memberId: [1, "uint64"],
  name: [2, "text"],
  peerUrls: [3, "text", "repeated"],
  clientUrls: [4, "text", "repeated"],
};

export const MEMBERS_RESPONSE: Message<Answer & { readonly members: readonly MemberMessage[] }> = {
  header,
  members: [2, () => MEMBER, "repeated"],
};

export interface AlarmRequest {
  /** 0: list, 1: activate, 2: deactivate. */
  readonly action: number;
  /** 1: no space. */
  readonly alarm: number;
}

export const ALARM_REQUEST: Message<AlarmRequest> = { action: [1, "number"], alarm: [3, "number"] };

interface AlarmMessage {
  readonly memberId: bigint;
  readonly alarm: number;
}

const ALARM: Message<AlarmMessage> = { memberId: [1, "uint64"], alarm: [2, "number"] };
export const ALARMS_RESPONSE: Message<Answer & { readonly alarms: readonly AlarmMessage[] }> = {
  header,
  alarms: [2, () => ALARM, "repeated"],
};

export interface StatusResponse extends Answer {
  readonly version: string;
  readonly dbSize: number;
  readonly leader: bigint;
  readonly raftIndex: number;
  readonly raftTerm: bigint;
  readonly appliedIndex: number;
  readonly errors: readonly string[];
  readonly dbSizeInUse: number;
  /** From 3.6 on, as what follows. */
  readonly storageVersion?: string;
  readonly quota?: number;
  readonly downgrade?: object;
}

export const STATUS_RESPONSE: Message<StatusResponse> = {
  header,
  version: [2, "text"],
  dbSize: [3, "number"],
  leader: [4, "uint64"],
  raftIndex: [5, "number"],
  raftTerm: [6, "uint64"],
  appliedIndex: [7, "number"],
  errors: [8, "text", "repeated"],
  dbSizeInUse: [9, "number"],
  storageVersion: [11, "text"],
  quota: [12, "number"],
  downgrade: [13, () => EMPTY],
};

export const HASH_REQUEST: Message<{ readonly revision: bigint }> = { revision: [1, "int64"] };

export interface HashResponse extends Answer {
  readonly hash: number;
  readonly compactRevision: bigint;
  readonly hashRevision?: bigint | undefined;
}

export const HASH_RESPONSE: Message<HashResponse> = {
  header,
  hash: [2, "number"],
  compactRevision: [3, "int64"],
  hashRevision: [4, "int64"],
};

export const HEALTH_REQUEST: Message<{ readonly service: string }> = { service: [1, "text"] };
export const HEALTH_RESPONSE: Message<{ readonly status: number }> = { status: [1, "number"] };

export const MOVE_LEADER_REQUEST: Message<{ readonly memberId: bigint }> = { memberId: [1, "uint64"] };
