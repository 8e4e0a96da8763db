// Everyday use
export { Cluster } from "./session/cluster.js";
export { connect, fromEnv } from "./connect.js";
export type { ConnectOptions, Credentials } from "./session/connect.js";
export { Mutex, type WorkOptions } from "./locks/mutex.js";
export { RwLock } from "./locks/rwlock.js";
export { Semaphore } from "./locks/semaphore.js";
export { lockAll, type MultiLock } from "./locks/lock-all.js";
export { Election } from "./election/election.js";
export { lead, type LeadOptions } from "./election/lead.js";
export { lockName } from "./lock-name.js";
export { once, type OnceOptions, type OnceResult, type OnceRun } from "./once/once.js";

// Asking etcd
export { forceRelease } from "./inspect/force-release.js";
export { inspect, type LimitOption } from "./inspect/inspect.js";
export { list, type ListOptions, type LockPage, type LockSummary } from "./inspect/list.js";
export { watchQueue, type WatchQueueOptions } from "./inspect/watch-queue.js";

// Advanced
export { Session } from "./session/cluster.js";
export { FenceGate, whileHeld } from "./fence.js";
export { ClusterLockManager } from "./web-locks/cluster-lock-manager.js";

// Types and errors
export type { Hold, Lock } from "./hold/hold.js";
export type { Leader } from "./election/leader.js";
export type { Leadership } from "./election/leadership.js";
export type {
  CloseOptions,
  LockOptions,
  QueueWaitOptions,
  SessionOptions,
  WaitOptions,
} from "./session/session-options.js";
export type { SessionSource } from "./session/session-source.js";
export type { SessionState } from "./session/lease.js";
export type { SessionStateEvent } from "./session/state-event.js";
export type { RenewalReport } from "./renewal-report.js";
export type { QueueKind } from "./inspect/entry.js";
export type { QueueState } from "./inspect/state.js";
export type { Logger } from "./options/log.js";
export type { ClusterHealth, MemberHealth, MemberState } from "./report/health.js";
export type { ClusterSnapshot, HoldSnapshot, SessionSnapshot, WaitSnapshot } from "./report/snapshot.js";
export type { LockKind } from "./diagnostics/messages.js";
export type { FoundKind } from "./kinds.js";
export type { Contender } from "./contender.js";
export type { WebLock, WebLockOptions } from "./web-locks/arguments.js";
export type { WebLockInfo, WebLockSnapshot } from "./web-locks/snapshot.js";
export {
  DeadlockError,
  EtcdRefusedError,
  EtcdUnavailableError,
  KindMismatchError,
  LeaseholdError,
  LockExpiringError,
  LockLostError,
  LockReleasedError,
  LockTimeoutError,
  SessionClosedError,
  SessionLostError,
  StaleFenceError,
  type AnyLeaseholdError,
  type LeaseholdErrorCode,
  type Loss,
} from "./errors.js";
export { isLeaseholdError } from "./is-leasehold-error.js";
