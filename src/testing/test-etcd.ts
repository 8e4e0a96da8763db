import type { Lock, Session } from "../index.js";

/** What etcd still has, and whom it still serves. */
export interface Leftovers {
  /** Sorted. */
  readonly keys: readonly string[];
  readonly leases: readonly bigint[];
  /** The number of watches that clients have open. */
  readonly watches: number;
  /** Bigints become decimal strings. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** A lock, a permit, a leadership or another hold; `lockAll()` has several keys. */
export type Losable = Pick<Lock, "revision" | "signal"> &
  (Pick<Lock, "key"> | { readonly keys: readonly string[] });

/**
 * An etcd of your own, and what can happen to it. Members have the indices 0 to 2; a call that names no member is about all of
 * them. Every method but `stop()` rejects after `stop()`, and with a `RangeError` for a member that does not exist.
 */
export interface TestEtcd extends AsyncDisposable {
  /**
   * For `connect({ hosts })`, in the order of the members. They lead to the members through links, which `cut()` cuts.
   */
  readonly hosts: readonly string[];
  /** The environment for `etcdctl` and for child processes that call `connect(fromEnv())`: ETCDCTL_ENDPOINTS. */
  readonly env: { readonly ETCDCTL_ENDPOINTS: string };
  /** The version of etcd, such as "3.4.23"; undefined for an image. */
  readonly version: string | undefined;

  /**
   * Suspends the process of a member (SIGSTOP), or its container. Connections stay open, and nothing is answered. Resolves when it
   * is suspended.
   */
  pause(member?: number): Promise<void>;
  /** Ends `pause()`. Does nothing for a member that runs. */
  resume(member?: number): Promise<void>;
  /**
   * Cuts the link between the clients and a member; the members still reach each other.
   *
   * With "silent", the default, connections stay open and new ones are accepted, but every byte is dropped in both directions, as
   * by a firewall that drops packets. With "reset", open connections and new ones are reset at once.
   */
  cut(member?: number, options?: { readonly how?: "silent" | "reset" | undefined }): Promise<void>;
  /**
   * Ends `cut()`. Connections that were silent are reset, so that clients connect again: what they sent meanwhile never reaches
   * etcd.
   */
  heal(member?: number): Promise<void>;
  /** Kills the process of a member (SIGKILL), or its container. Its data stays for `restart()`. */
  kill(member?: number): Promise<void>;
  /**
   * Kills a member if it runs, and starts it with its data. Resolves when it answers, for which most members must run: restart
   * those together by naming none.
   * @throws an `Error` with what etcd printed if it does not answer within 30 s.
   */
  restart(member?: number): Promise<void>;
  /** The index of the member that leads. Waits up to 10 s for an election. */
  leader(): Promise<number>;

  /**
   * Revokes the lease of a session behind its back, as an operator could. Resolves when etcd has the lease and its keys no more;
   * the session learns of it later: wait for its `signal`.
   * @throws an `Error` if etcd has no such lease, or if no member answers within 10 s.
   */
  expire(session: Pick<Session, "leaseId"> | bigint): Promise<void>;
  /**
   * Deletes the key of a lock behind its back. Resolves when its holder knows: when `lock.signal` has aborted.
   * @throws an `Error` if etcd does not have the key any more, if no member answers within 10 s, or if the holder has not noticed
   *   10 s later, for example because its link is cut.
   */
  lose(lock: Losable): Promise<void>;

  /** The keys in etcd that start with `prefix`, sorted. @throws an `Error` if no member answers within 10 s. */
  keys(prefix?: string): Promise<string[]>;
  /** What is left in etcd now. Of members that are paused or killed, the watches are not counted. */
  leftovers(): Promise<Leftovers>;
  /**
   * Whether etcd has no key, no lease and no watch: true as soon as that is so, false after `timeoutMs`, which is 2000 unless
   * told. A client that was closed a moment ago may still have a watch there.
   */
  isQuiet(options?: { readonly timeoutMs?: number | undefined }): Promise<boolean>;

  /**
   * Kills the members and removes their data, whatever state they are in. What was under way rejects. Idempotent. Without it, the
   * members end with this process.
   */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
