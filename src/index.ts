// Everyday use
export { Cluster } from "./lock/session/cluster.js";
export { connect, fromEnv } from "./connect.js";
export type { ConnectOptions, Credentials, Etcd3ConnectOptions } from "./lock/session/connect.js";
export type { Etcd3Client } from "./base/options/etcd3-client.js";
export { Mutex, type WorkOptions } from "./lock/mutex.js";
export { RwLock } from "./lock/rwlock.js";
export { Semaphore } from "./lock/semaphore.js";
export { lockAll, type MultiLock } from "./lock/lock-all.js";
export { Election } from "./recipes/election/election.js";
export { lead, type LeadOptions } from "./recipes/election/lead.js";
export { lockName } from "./lock-name.js";
export { type ShutdownOptions, untilShutdown } from "./shutdown.js";
export {
  type KeepingOnceOptions,
  once,
  type OnceError,
  type OnceOptions,
  type OnceReply,
  type OnceResult,
  type OnceRun,
} from "./recipes/once/once.js";
export { catchUp, type CatchUpOptions, type CaughtUp, type Tick } from "./recipes/once/catch-up.js";
export { share, type ShareOptions } from "./recipes/once/share.js";
export type { OnceRecord } from "./recipes/once/history.js";
export { shards, type Shards } from "./recipes/shards/shards.js";
export type { ShardsOptions } from "./recipes/shards/options.js";
export type { Shard } from "./recipes/shards/own-shard.js";
export { type ShardMap, watchShards } from "./recipes/shards/routing.js";
export {
  join,
  type MemberChanges,
  type MemberList,
  members,
  type Membership,
} from "./recipes/members/members.js";
export {
  CountDownLatch,
  type CountOptions,
  type LatchCounter,
  type LatchOptions,
  type LatchWaitOptions,
} from "./recipes/rendezvous/latch.js";
export { Barrier, type HoldBarrierOptions } from "./recipes/rendezvous/barrier.js";
export { DoubleBarrier, type DoubleBarrierOptions } from "./recipes/rendezvous/double-barrier.js";

// Asking etcd
export { forceRelease } from "./observe/inspect.js";
export { inspect, type LimitOption } from "./observe/inspect.js";
export { list, type ListOptions, type LockPage, type LockSummary } from "./observe/list.js";
export { watchQueue, type WatchQueueOptions } from "./observe/inspect.js";

// Advanced
export { Session } from "./lock/session/cluster.js";
export { FenceGate, whileHeld } from "./fence.js";
export { ClusterLockManager } from "./recipes/web-locks/cluster-lock-manager.js";

// Types and errors
export type { Hold, Lock } from "./lock/hold/hold.js";
export type { WriteLock } from "./lock/hold/write-lock.js";
export type { Member, MemberOptions, MembershipState } from "./recipes/members/member.js";
export type { ShardOwner, ShardOwners } from "./recipes/shards/view.js";
export type { Leader } from "./recipes/election/leader.js";
export type { CandidateOptions, ElectionCandidate, TransferTarget } from "./recipes/election/candidates.js";
export type { Leadership } from "./recipes/election/leadership.js";
export type {
  CloseOptions,
  LockOptions,
  StickyLockOptions,
  LockWaitOptions,
  MutexOptions,
  MutexWaitOptions,
  QueueWaitOptions,
  SessionOptions,
  WaitOptions,
} from "./lock/session/session-options.js";
export type { SemaphoreOptions, WeightOption } from "./lock/semaphore.js";
export type { SessionSource } from "./lock/session/cluster.js";
export type { SessionState } from "./lock/session/lease.js";
export type { SessionStateEvent } from "./lock/session/cluster.js";
export type { RenewalReport } from "./errors.js";
export type { QueueKind } from "./lock/queue/seen-entry.js";
export type { QueueState } from "./observe/inspect.js";
export type { LogFunction, Logger, LogLevel, LogRecord } from "./base/options/connect.js";
export type { ClusterHealth, GuardianHealth, MemberHealth, MemberState } from "./base/telemetry/health.js";
export type {
  ClusterSnapshot,
  HoldSnapshot,
  KeptSnapshot,
  SessionSnapshot,
  WaitSnapshot,
} from "./base/telemetry/inspect.js";
export type { LockKind } from "./base/telemetry/messages.js";
export type { FoundKind } from "./kinds.js";
export type { Contender } from "./contender.js";
export type { WebLock, WebLockOptions } from "./recipes/web-locks/arguments.js";
export type { WebLockInfo, WebLockSnapshot } from "./recipes/web-locks/cluster-lock-manager.js";
export {
  DeadlockError,
  EtcdRefusedError,
  EtcdUnavailableError,
  httpStatusOf,
  KindMismatchError,
  LeaseholdError,
  LockExpiringError,
  LockLostError,
  LockReleasedError,
  LockTimeoutError,
  QueueFullError,
  SupersededError,
  PackageMissingError,
  SessionClosedError,
  SessionLostError,
  FingerprintMismatchError,
  OnceRunningError,
  ResultNotKeptError,
  RunFailedError,
  LatchBrokenError,
  BarrierBrokenError,
  BarrierFullError,
  CountMismatchError,
  WaitTimeoutError,
  ShardCountError,
  ShardMovedError,
  StaleFenceError,
  TransferError,
  type TransferRefusal,
  type AnyLeaseholdError,
  type LeaseholdErrorCode,
  type Loss,
} from "./errors.js";
export { isLeaseholdError } from "./errors.js";
