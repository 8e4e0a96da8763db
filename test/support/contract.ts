// The public API as it was promised, in its own words: what src/index.ts exports must be usable as this.
// Types only. A change here is a change of the promise.

export declare function connect(options: ConnectOptions): Cluster;

export interface ConnectOptions {
  readonly hosts: string | readonly string[];
  readonly credentials?: Credentials | undefined;
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  readonly grpcOptions?: Readonly<Record<string, unknown>> | undefined;
  readonly requestTimeoutMs?: number | undefined;
  readonly session?: SessionOptions | undefined;
}
export interface Credentials {
  readonly rootCertificate: Uint8Array;
  readonly privateKey?: Uint8Array | undefined;
  readonly certChain?: Uint8Array | undefined;
}
export interface CloseOptions {
  readonly drainMs?: number | undefined;
}
export interface SessionOptions {
  readonly ttlSeconds?: number | undefined;
  readonly owner?: string | undefined;
}
export interface WaitOptions {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}
export interface WorkOptions extends WaitOptions {
  readonly reentrant?: boolean | undefined;
}

export interface Cluster extends AsyncDisposable {
  readonly hosts: readonly string[];
  session(options?: WaitOptions): Promise<Session>;
  close(options?: CloseOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
export declare const Cluster: { readonly prototype: Cluster };

export type SessionState = "live" | "jeopardy" | "lost" | "closed";
export interface SessionStateEvent extends Event {
  readonly type: "statechange";
  readonly state: SessionState;
  readonly previous: SessionState;
}
export type StateListener =
  ((event: SessionStateEvent) => void) | { handleEvent(event: SessionStateEvent): void };

export interface Session extends EventTarget, AsyncDisposable {
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  readonly owner: string;
  readonly state: SessionState;
  readonly signal: AbortSignal;
  remainingMs(): number;
  close(options?: CloseOptions): Promise<void>;
  orphan(): Promise<bigint>;
  addEventListener(
    type: "statechange",
    listener: StateListener | null,
    options?: boolean | { once?: boolean; signal?: AbortSignal },
  ): void;
  removeEventListener(type: "statechange", listener: StateListener | null, options?: boolean): void;
  [Symbol.asyncDispose](): Promise<void>;
}
export declare const Session: {
  readonly prototype: Session;
  open(cluster: Cluster, options?: SessionOptions & WaitOptions): Promise<Session>;
  adopt(
    cluster: Cluster,
    leaseId: bigint,
    options?: Pick<SessionOptions, "owner"> & WaitOptions,
  ): Promise<Session>;
};

export interface Hold extends AsyncDisposable {
  readonly name: string;
  readonly key: string;
  readonly revision: bigint;
  readonly signal: AbortSignal;
  readonly held: boolean;
  remainingMs(): number;
  assertHeld(atLeastMs?: number): void;
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  toJSON(): {
    readonly name: string;
    readonly key: string;
    readonly revision: string;
    readonly held: boolean;
  };
}
export interface Lock extends Hold {
  readonly fence: bigint;
}
export type SessionSource = Cluster | Session;

export declare class Mutex {
  constructor(source: SessionSource, name: string);
  readonly name: string;
  lock(options?: WaitOptions): Promise<Lock>;
  tryLock(options?: WaitOptions): Promise<Lock | undefined>;
  withLock<T>(work: (lock: Lock) => T, options?: WorkOptions): Promise<Awaited<T>>;
}

export declare class RwLock {
  constructor(source: SessionSource, name: string);
  readonly name: string;
  readLock(options?: WaitOptions): Promise<Hold>;
  writeLock(options?: WaitOptions): Promise<Lock>;
  tryReadLock(options?: WaitOptions): Promise<Hold | undefined>;
  tryWriteLock(options?: WaitOptions): Promise<Lock | undefined>;
  withReadLock<T>(work: (hold: Hold) => T, options?: WaitOptions): Promise<Awaited<T>>;
  withWriteLock<T>(work: (lock: Lock) => T, options?: WaitOptions): Promise<Awaited<T>>;
}
export declare class Semaphore {
  constructor(source: SessionSource, name: string, permits: number);
  readonly name: string;
  readonly permits: number;
  acquire(options?: WaitOptions): Promise<Hold>;
  tryAcquire(options?: WaitOptions): Promise<Hold | undefined>;
  withPermit<T>(work: (hold: Hold) => T, options?: WaitOptions): Promise<Awaited<T>>;
}

export interface MultiLock extends Omit<Lock, "name" | "key" | "toJSON"> {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  toJSON(): { readonly names: readonly string[]; readonly revision: string; readonly held: boolean };
}
/** As a method, whose parameters may be narrower: the classes here have none of the private members of ours. */
export declare const lockAll: {
  all(source: SessionSource, names: readonly string[], options?: WaitOptions): Promise<MultiLock>;
}["all"];

export interface Leader {
  readonly key: string;
  readonly value: string;
  readonly fence: bigint;
  readonly revision: bigint;
  readonly leaseId: bigint;
  toJSON(): Readonly<Record<"key" | "value" | "fence" | "revision" | "leaseId", string>>;
}
export declare class Election {
  constructor(source: SessionSource, name: string);
  readonly name: string;
  campaign(value: string, options?: WaitOptions): Promise<Leadership>;
  leader(options?: WaitOptions): Promise<Leader | undefined>;
  observe(options?: { readonly signal?: AbortSignal | undefined }): AsyncIterableIterator<Leader | undefined>;
}
export interface Leadership extends Lock {
  proclaim(value: string): Promise<void>;
  resign(): Promise<void>;
}
export interface LeadOptions extends SessionOptions {
  readonly value?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onLeader?: ((leader: Leader | undefined) => void) | undefined;
  readonly onRetry?: ((error: LeaseholdError, delayMs: number) => void) | undefined;
}
export declare const lead: {
  lead(
    cluster: Cluster,
    name: string,
    work: (leadership: Leadership) => unknown,
    options?: LeadOptions,
  ): Promise<void>;
}["lead"];

export declare class ClusterLockManager implements AsyncDisposable {
  constructor(cluster: Cluster, options?: { readonly prefix?: string | undefined });
  request<T>(name: string, callback: (lock: WebLock | null) => T): Promise<Awaited<T>>;
  request<T>(
    name: string,
    options: WebLockOptions,
    callback: (lock: WebLock | null) => T,
  ): Promise<Awaited<T>>;
  query(): Promise<WebLockSnapshot>;
  close(options?: CloseOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
export interface WebLock {
  readonly name: string;
  readonly mode: "exclusive" | "shared";
  readonly signal: AbortSignal;
  readonly revision: bigint;
  readonly key: string;
}
export interface WebLockOptions {
  mode?: "exclusive" | "shared";
  ifAvailable?: boolean;
  steal?: boolean;
  signal?: AbortSignal;
}
export interface WebLockInfo {
  name: string;
  mode: "exclusive" | "shared";
  clientId: string;
}
export interface WebLockSnapshot {
  held: WebLockInfo[];
  pending: WebLockInfo[];
}

export declare function whileHeld(
  hold: Pick<Hold, "key" | "revision">,
): readonly [key: string, column: "Create", comparator: "==", revision: string];
export interface FenceGate {
  readonly highest: bigint;
  admit(fence: bigint): void;
}
export declare const FenceGate: new (highest?: bigint) => FenceGate;

export interface Place {
  readonly name: string;
  readonly key: string;
  readonly state: "holding" | "waiting";
  readonly revision: bigint;
  readonly leaseId: bigint;
  readonly owner: string | undefined;
  readonly since: Date | undefined;
  readonly ttlRemainingMs: number | undefined;
  toJSON(): Readonly<Record<string, unknown>>;
}

export type LeaseholdErrorCode =
  | "SESSION_LOST"
  | "SESSION_CLOSED"
  | "LOCK_LOST"
  | "LOCK_RELEASED"
  | "LOCK_TIMEOUT"
  | "LOCK_EXPIRING"
  | "STALE_FENCE"
  | "DEADLOCK"
  | "ETCD_UNAVAILABLE"
  | "ETCD_REFUSED";
export type Loss = "expired" | "revoked" | "deleted" | "closed";

/** How errors are made is no promise; that `instanceof` knows them is. */
type ErrorClass<E> = abstract new (...args: never[]) => E;
export interface LeaseholdError extends Error {
  readonly code: LeaseholdErrorCode;
  toJSON(): Readonly<Record<string, unknown>>;
}
export declare const LeaseholdError: ErrorClass<LeaseholdError>;
export interface SessionLostError extends LeaseholdError {
  readonly code: "SESSION_LOST";
  readonly leaseId: bigint;
  readonly loss: "expired" | "revoked";
}
export declare const SessionLostError: ErrorClass<SessionLostError>;
export interface SessionClosedError extends LeaseholdError {
  readonly code: "SESSION_CLOSED";
  readonly leaseId: bigint;
}
export declare const SessionClosedError: ErrorClass<SessionClosedError>;
export interface LockLostError extends LeaseholdError {
  readonly code: "LOCK_LOST";
  readonly lockName: string;
  readonly key: string;
  readonly loss: Loss;
}
export declare const LockLostError: ErrorClass<LockLostError>;
export interface LockReleasedError extends LeaseholdError {
  readonly code: "LOCK_RELEASED";
  readonly lockName: string;
}
export declare const LockReleasedError: ErrorClass<LockReleasedError>;
export interface LockTimeoutError extends LeaseholdError {
  readonly code: "LOCK_TIMEOUT";
  readonly lockName: string;
  readonly timeoutMs: number;
  readonly holder: Place | undefined;
  readonly ahead: number | undefined;
}
export declare const LockTimeoutError: ErrorClass<LockTimeoutError>;
export interface LockExpiringError extends LeaseholdError {
  readonly code: "LOCK_EXPIRING";
  readonly lockName: string;
  readonly remainingMs: number;
}
export declare const LockExpiringError: ErrorClass<LockExpiringError>;
export interface StaleFenceError extends LeaseholdError {
  readonly code: "STALE_FENCE";
  readonly fence: bigint;
  readonly highest: bigint;
}
export declare const StaleFenceError: ErrorClass<StaleFenceError>;
export interface DeadlockError extends LeaseholdError {
  readonly code: "DEADLOCK";
  readonly lockName: string;
}
export declare const DeadlockError: ErrorClass<DeadlockError>;
export interface EtcdUnavailableError extends LeaseholdError {
  readonly code: "ETCD_UNAVAILABLE";
  readonly members: ReadonlyMap<string, Error>;
  readonly cause: AggregateError;
}
export declare const EtcdUnavailableError: ErrorClass<EtcdUnavailableError>;
export interface EtcdRefusedError extends LeaseholdError {
  readonly code: "ETCD_REFUSED";
  readonly why: "unauthenticated" | "permission" | "quota" | "tls" | "member" | "other";
  readonly host: string;
}
export declare const EtcdRefusedError: ErrorClass<EtcdRefusedError>;

export type AnyLeaseholdError =
  | SessionLostError
  | SessionClosedError
  | LockLostError
  | LockReleasedError
  | LockTimeoutError
  | LockExpiringError
  | StaleFenceError
  | DeadlockError
  | EtcdUnavailableError
  | EtcdRefusedError;
