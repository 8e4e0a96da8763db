export { Cluster, connect, type ConnectOptions, type Credentials } from "./cluster.js";
export { lockAll, type MultiLock } from "./multilock.js";
export { Mutex, type WorkOptions } from "./mutex.js";
export { RwLock } from "./rwlock.js";
export { Semaphore } from "./semaphore.js";
export { ClusterLockManager } from "./cluster-lock-manager.js";
export type { WebLock, WebLockOptions } from "./web-lock-arguments.js";
export type { WebLockInfo, WebLockSnapshot } from "./web-lock-snapshot.js";
export { Election } from "./election.js";
export { lead, type LeadOptions } from "./lead.js";
export type { Leader } from "./leader.js";
export type { Leadership } from "./leadership.js";
export type { Hold, Lock } from "./hold.js";
export {
  Session,
  type CloseOptions,
  type SessionOptions,
  type SessionState,
  type SessionStateEvent,
  type WaitOptions,
} from "./session.js";
export type { SessionSource } from "./source.js";
export { FenceGate, whileHeld } from "./fence.js";
export type { Place } from "./contender.js";
export {
  DeadlockError,
  EtcdRefusedError,
  EtcdUnavailableError,
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
