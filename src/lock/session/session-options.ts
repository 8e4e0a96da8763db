export interface SessionOptions {
  /**
   * How long etcd keeps the locks of a holder that has died, in whole seconds, 2..86400. A lower value frees them sooner,
   * but tolerates only shorter pauses of the process and shorter outages of etcd. Below ten round trips to etcd, no call succeeds after a
   * broken connection.
   * @default 15
   */
  readonly ttlSeconds?: number | undefined;
  /** Shown to other clients, as by `inspect`. At most 256 bytes. @default "host:pid" */
  readonly owner?: string | undefined;
  /**
   * Milliseconds, 0..3600000. After a crash of a holder, the next one waits for this time after the lease has ended, whether that has
   * expired or was revoked by the guardian: writes of the dead holder that are still under way arrive first. This is for resources that
   * can't check a fence, and a bound only if those writes take no longer. A release, and a `close()` after it, hand over at once.
   * Every client waits, Go's and those without the option included. A waiter that dies delays those behind it, too. Not for a Semaphore.
   * Like Consul's `LockDelay` and Chubby's lock-delay; see docs/leases.md.
   *
   * After a crash with the guardian, the wait is exact. Otherwise it's longer by up to 2.5 s, as etcd counts leases in whole seconds; by a
   * tenth of the TTL more if the session was lost in a live process, or by a TTL more if its lease was revoked by hand or by a `close()` under
   * running work.
   * `leader()` and `observe()` show a leader that has crashed until its delay is over. The session sends twice as many renewals. If its
   * second lease is revoked by hand, it takes no new locks, and its holds go on.
   * @default 0: no delay
   */
  readonly releaseDelayMs?: number | undefined;
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

/** The limits of a call that waits in a queue. */
export interface QueueWaitOptions extends WaitOptions {
  /**
   * Only with a Cluster as the source. If the session is lost, closed or orphaned while the call waits, the call joins the queue again with
   * the cluster's next session, **at its end**, instead of rejecting; an event and a log line report it. The old entry goes with its lease,
   * after the TTL at the latest, and until then the new one may wait behind it. Calls that join again together do so in any order. While
   * etcd does not answer, it tries again after a pause
   * of up to 1 s, without a limit unless you set one: `timeoutMs` and `signal` apply to all attempts together. So a
   * call without `timeoutMs` waits for ever if the hosts are wrong.
   * A loss after the grant is a LockLostError, as always.
   *
   * EtcdRefusedError and `cluster.close()`, with SessionClosedError, end the call. With a Session as the source, which has no
   * next session, the call rejects with a TypeError.
   * @default false
   */
  readonly rejoin?: boolean | undefined;
}

/** The options of a call that waits for a lock. */
export interface LockWaitOptions extends QueueWaitOptions {
  /**
   * Why the lock is wanted, such as `"deploy 4711"`: shown to its holder (`onWanted`) and to whoever looks at the queue, and after the
   * grant for as long as the lock is held. 1 to 256 bytes. Anybody who may read the queue in etcd sees it. @default none
   */
  readonly reason?: string | undefined;
  /**
   * At most so many entries wait in the queue with this one, 1..1000, of all processes: otherwise the call rejects at once with a
   * QueueFullError, after one request that writes nothing in nearly all cases. Holders don't count. Callers without the option always join,
   * and count. A place costs two requests: the second joins only if nobody has joined since the first. After twenty such attempts, the call
   * joins in any case, and leaves at once if so many wait before it. Not for `lockAll`. For 0, use a `try…` method. @default no limit
   */
  readonly maxWaiting?: number | undefined;
}

/** The options of a call that waits for a Mutex. */
export interface MutexWaitOptions extends LockWaitOptions {
  /**
   * The newest caller wins: older calls with this option that wait for the lock, in all processes, end with a SupersededError, and this
   * one takes their place behind the holder and the callers without the option. Of calls at the same time, the one that etcd sees last is
   * the newest. The holder keeps the lock; `lock.onWanted` tells it. A superseded call never holds afterwards, and does not come back if the
   * newest one is aborted or crashes.
   *
   * A free lock costs one request, a place in the queue two, with nobody joining in between: while others join more often than once in a
   * round trip to etcd, the call gets no place, and the later calls of its session for this name wait behind it, up to `timeoutMs`. A call
   * that joins again, as with `rejoin`, ends if a newer one is there, or has been there meanwhile. If etcd has compacted what has come since, a
   * call ends after a lost answer, and joins again after the loss of its session (`rejoin`), though it may have been superseded. Excludes
   * `maxWaiting` and a sticky Mutex. The call deletes keys of other sessions: if each process has a user of its own in etcd, each user needs
   * the right to write all of these keys.
   * @default false
   */
  readonly supersede?: boolean | undefined;
  /**
   * Only of a Mutex with `priorities`: a whole number, -1000..1000. A higher one is served sooner, in all processes, but overtakes only those
   * that have waited for less than the difference times `agingMs` when it comes, and never the holder. @default 0
   */
  readonly priority?: number | undefined;
}

export interface CloseOptions {
  /**
   * Milliseconds, 0 or more. `close` refuses new calls, keeps renewing until every hold is released or this time has
   * passed, and then revokes the lease. 0 = revoke at once: work that still runs loses its lock.
   * @default 5000
   */
  readonly drainMs?: number | undefined;
}

/** Options for all holds of a lock object. */
export interface LockOptions {
  /**
   * Replaces the name in metrics, where each name would be one more time series: `"orders/:user"` for locks named
   * `orders/17`, `orders/18` and so on. 1 to 100 printable ASCII characters. @default none
   */
  readonly label?: string | undefined;
  /**
   * Milliseconds from the grant, 1..2147483647, on the monotonic clock. A hold that lasts longer is lost: `held` is false,
   * `assertHeld` throws, and `signal` aborts with a LockLostError whose `loss` is "max_hold". The key stays for
   * `maxHoldGraceMs` more, so that work that stops when the signal aborts has stopped before the next holder starts. Then
   * the key is deleted, whether or not the work has stopped. The session and its other holds go on.
   *
   * `release()` within that time deletes the key at once. Like after every loss, it rejects with that error, and so does a
   * `with…` method whose work succeeds too late. Work that ignores the signal overlaps with that of the next holder: check
   * `fence` where it writes.
   * @default no limit
   */
  readonly maxHoldMs?: number | undefined;
  /**
   * Milliseconds, 0..2147483647, from the abort of the signal by `maxHoldMs` to the deletion of the key; 0 = at once. Set it
   * to the time that your work needs to stop.
   * @default a tenth of maxHoldMs, at most 1000
   */
  readonly maxHoldGraceMs?: number | undefined;
  /**
   * Milliseconds from the grant, 1..2147483647, after which an event and a log line report, once, that a hold still lasts.
   * @default none
   */
  readonly warnHoldMs?: number | undefined;
}

/** Options for a lock whose key may stay with its session. */
export interface StickyLockOptions extends LockOptions {
  /**
   * After `release()`, the key stays with the session as long as no other session asks for the lock, and this session takes the lock again
   * without a request. For a process that takes the same lock again and again, while hardly anybody else does. The first lock of a name
   * is plain; from the second one on, the session watches the queue. As soon as another client joins it, a key that nobody holds leaves,
   * and one that is held leaves with the release: the other one waits for a hand-over. A name that another session asks for, or
   * whose lock was waited for, is plain for 0.2 s to 10 s. A key that nobody has used for five minutes leaves; while it is used, one read in
   * five minutes finds whoever the watch has not reported. `close()`, and so `untilShutdown`, and `orphan()` give keys back that nobody holds.
   *
   * `tryLock` of another session asks for a key that stays, and gets it after a hand-over; that of Go's client is refused once. A
   * `release()` that sends nothing can't tell of a loss that nobody has told yet: `signal` and `held` tell what is known. All holds by one key have one `fence`, and a `turn` each.
   * @default false
   */
  readonly sticky?: boolean | undefined;
  /**
   * Only with `sticky`. While others wait in the queue, a held key is passed on to callers of this process, up to `turns` times (1..1000000) and for up to
   * `ms` milliseconds (default 100) from when the first of them has joined, or from the grant if it was there before. Then this process joins
   * at the end of the queue. The others wait longer for so long, for each process that sets `local`. The callers of this process have one
   * key in the queue then, and not one each; those of a semaphore, and readers, wait in the queue as always. A name that others ask for stays
   * sticky.
   * @default none: it leaves with the release
   */
  readonly local?: { readonly turns: number; readonly ms?: number | undefined } | undefined;
}

/** Options for a Mutex. */
export interface MutexOptions extends StickyLockOptions {
  /**
   * Calls may have a `priority`. A call is as good as one of the next lower priority that came `agingMs` (1..2147483647) before it, so
   * none waits for ever: it's overtaken only by those of a higher priority that come at most the difference times `agingMs` after it, by
   * the clocks of the processes. A wrong clock makes a call go sooner or later, and never decides who holds. The fences rise from hold to
   * hold, as always. `tryLock` takes no priority, and needs an empty queue.
   *
   * A place in the queue costs two requests. A hand-over costs the release, one request of the next call, and a read of the one behind it, of
   * some 150 bytes for each that waits. A call that comes while a better one is about to take the lock joins after that, or after a second.
   *
   * All clients of the name must set it, or none: such a Mutex is of a kind of its own, and a call of the other kind is rejected with a
   * KindMismatchError. So is a call that meets a client which doesn't know kinds, such as Go's: at once if that one came first, otherwise
   * after a second, as the two would wait for each other. So is a call that meets the key which a sticky lock of another session keeps, even
   * if nobody has that lock. If they set different `agingMs`, each call counts with its own. Up to 1,000 calls wait for a name; a
   * further one is rejected with a QueueFullError. Not together with `sticky`, and not for calls with `maxWaiting` or `supersede`.
   * @default false: the calls are served in order. true: `agingMs` is 30000
   */
  readonly priorities?: boolean | { readonly agingMs?: number | undefined } | undefined;
}
