// Everyday use
export { Cluster } from "./session/cluster.js";
export { connect, fromEnv } from "./connect.js";
export type { ConnectOptions, Credentials, Etcd3ConnectOptions } from "./session/connect.js";
export type { Etcd3Client } from "./options/etcd3-client.js";
export { Mutex, type WorkOptions } from "./locks/mutex.js";
export { RwLock } from "./locks/rwlock.js";
export { Semaphore } from "./locks/semaphore.js";
export { lockAll, type MultiLock } from "./locks/lock-all.js";
export { Election } from "./election/election.js";
export { lead, type LeadOptions } from "./election/lead.js";
export { lockName } from "./lock-name.js";
export { type ShutdownOptions, untilShutdown } from "./shutdown.js";
export { once, type OnceOptions, type OnceResult, type OnceRun } from "./once/once.js";

// Asking etcd
export { forceRelease } from "./view/inspect.js";
export { inspect, type LimitOption } from "./view/inspect.js";
export { list, type ListOptions, type LockPage, type LockSummary } from "./view/list.js";
export { watchQueue, type WatchQueueOptions } from "./view/inspect.js";

// Advanced
export { Session } from "./session/cluster.js";
export { FenceGate, whileHeld } from "./fence.js";
export { ClusterLockManager } from "./web-locks/cluster-lock-manager.js";

// Types and errors
export type { Hold, Lock } from "./hold/hold.js";
export type { Leader } from "./election/election.js";
export type { Leadership } from "./election/election.js";
export type {
  CloseOptions,
  LockOptions,
  QueueWaitOptions,
  SessionOptions,
  WaitOptions,
} from "./session/session-options.js";
export type { SessionSource } from "./session/cluster.js";
export type { SessionState } from "./session/lease.js";
export type { SessionStateEvent } from "./session/cluster.js";
export type { RenewalReport } from "./errors.js";
export type { QueueKind } from "./queue/seen-entry.js";
export type { QueueState } from "./view/inspect.js";
export type { LogFunction, Logger, LogLevel, LogRecord } from "./options/connect.js";
export type { ClusterHealth, GuardianHealth, MemberHealth, MemberState } from "./telemetry/health.js";
export type { ClusterSnapshot, HoldSnapshot, SessionSnapshot, WaitSnapshot } from "./telemetry/inspect.js";
export type { LockKind } from "./telemetry/messages.js";
export type { FoundKind } from "./kinds.js";
export type { Contender } from "./contender.js";
export type { WebLock, WebLockOptions } from "./web-locks/arguments.js";
export type { WebLockInfo, WebLockSnapshot } from "./web-locks/cluster-lock-manager.js";
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
  PackageMissingError,
  SessionClosedError,
  SessionLostError,
  StaleFenceError,
  type AnyLeaseholdError,
  type LeaseholdErrorCode,
  type Loss,
} from "./errors.js";
export { isLeaseholdError } from "./errors.js";
