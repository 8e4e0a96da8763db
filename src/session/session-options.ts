export interface SessionOptions {
  /**
   * How long etcd keeps the locks of a holder that has died, in whole seconds, 2..86400. A lower value frees them sooner,
   * but tolerates only shorter pauses of the process and shorter outages of etcd.
   * @default 15
   */
  readonly ttlSeconds?: number | undefined;
  /** `inspect` shows it to others. At most 256 bytes. @default "host:pid" */
  readonly owner?: string | undefined;
}

export interface WaitOptions {
  /**
   * An abort rejects at once with the signal's own reason; whatever the call has begun is undone in the background.
   * Ignored once the lock is granted.
   */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds, 1..2147483647. Default: no limit, unless the function says otherwise. */
  readonly timeoutMs?: number | undefined;
}

export interface CloseOptions {
  /**
   * Milliseconds, 0 or more. `close` refuses new calls, keeps renewing until every hold is released or this time has
   * passed, and then revokes the lease. 0 = revoke at once: work that still runs loses its lock.
   * @default 5000
   */
  readonly drainMs?: number | undefined;
}
