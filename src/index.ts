// Everyday use
export { Cluster, connect, type ConnectOptions, type Credentials } from "./session/cluster.js";
export { Mutex, type WorkOptions } from "./locks/mutex.js";
export { RwLock } from "./locks/rwlock.js";
export { Semaphore } from "./locks/semaphore.js";
export { lockAll, type MultiLock } from "./locks/lock-all.js";
export { Election } from "./election/election.js";
export { lead, type LeadOptions } from "./election/lead.js";

// Advanced
export {
  Session,
  type CloseOptions,
  type SessionOptions,
  type SessionState,
  type SessionStateEvent,
  type WaitOptions,
} from "./session/session.js";
export { FenceGate, whileHeld } from "./fence.js";
export { ClusterLockManager } from "./web-locks/cluster-lock-manager.js";

// Types and errors
export type { Hold, Lock } from "./hold/hold.js";
export type { Leader } from "./election/leader.js";
export type { Leadership } from "./election/leadership.js";
export type { SessionSource } from "./session/session-source.js";
export type { Contender } from "./contender.js";
export type { WebLock, WebLockOptions } from "./web-locks/arguments.js";
export type { WebLockInfo, WebLockSnapshot } from "./web-locks/snapshot.js";
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
