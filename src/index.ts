// Everyday use
export { Cluster } from "./session/cluster.js";
export { connect, type ConnectOptions, type Credentials } from "./session/connect.js";
export { Mutex, type WorkOptions } from "./locks/mutex.js";
export { RwLock } from "./locks/rwlock.js";
export { Semaphore } from "./locks/semaphore.js";
export { lockAll, type MultiLock } from "./locks/lock-all.js";
export { Election } from "./election/election.js";
export { lead, type LeadOptions } from "./election/lead.js";

// Advanced
export { Session } from "./session/cluster.js";
export { FenceGate, whileHeld } from "./fence.js";
export { ClusterLockManager } from "./web-locks/cluster-lock-manager.js";

// Types and errors
export type { Hold, Lock } from "./hold/hold.js";
export type { Leader } from "./election/leader.js";
export type { Leadership } from "./election/leadership.js";
export type { CloseOptions, SessionOptions, WaitOptions } from "./session/session-options.js";
export type { SessionSource } from "./session/session-source.js";
export type { SessionState } from "./session/lease.js";
export type { SessionStateEvent } from "./session/state-event.js";
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
