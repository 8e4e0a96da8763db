// The orders that a process of contenders reads as lines of JSON from standard input, one at a time; it answers each
// with one line, and prints `{"ok":true}` when it is ready. `go/main.go` implements the same protocol.

/** The first argument, as JSON. */
export interface Start {
  readonly adapter: string;
  /** Another build of leasehold. */
  readonly build?: string | undefined;
}

export type Command =
  | { readonly do: "open"; readonly connection: Connection }
  | { readonly do: "start"; readonly task: Task }
  /** Answered by a `Look`; with `collect`, after a garbage collection. */
  | { readonly do: "look"; readonly collect?: boolean }
  /** Answered by the milliseconds that it took, after everything it has opened is closed; null: the client has no such call. */
  | { readonly do: "step"; readonly step: StepName; readonly at: At }
  /** Ends the task and closes what was opened. Answered by `Stopped`. */
  | { readonly do: "stop" };

/** A single call that is timed, each time on a client of its own. */
export type StepName =
  | "first lock"
  | "first tryLock, taken"
  | "lock"
  | "tryLock"
  | "release"
  | "lock and release"
  | "lock, release not awaited, lock"
  | "20 locks of 20 names"
  | "lockAll of 5"
  | "hand-over"
  | "lock that another process keeps"
  | "campaign"
  | "proclaim"
  | "once, new slot"
  | "close";

/** Where a step is taken. */
export interface At {
  readonly address: string;
  /** A name that nothing else uses. */
  readonly name: string;
  /** The certificate of the authority, as PEM: over TLS. */
  readonly ca?: string;
  readonly user?: { readonly username: string; readonly password: string };
}

export interface Connection {
  readonly addresses: readonly string[];
  readonly ttlSeconds: number;
  readonly sessions: number;
}

export interface CycleTask {
  /** "call": one transaction instead of a lock and its release. */
  readonly kind: "cycle" | "try" | "call";
  readonly name: string;
  /** All contend for one name, or each has its own. */
  readonly names: "one" | "each";
  readonly contenders: number;
  /** If missing, the lock is held until the task is stopped. */
  readonly holdMs?: number;
  /** If missing, until the task is stopped. */
  readonly cycles?: number;
  /** The first contender begins after this time, and each other one so much later than the one before. */
  readonly afterMs?: number;
  /** Clients that poll stop after this time. */
  readonly forMs: number;
  /** Whether to measure stalls of the event loop. */
  readonly stalls?: boolean;
}

/** One lock and its release after the other, as fast as they go. */
export interface PairsTask {
  readonly kind: "pairs";
  readonly name: string;
}

export type Task = CycleTask | PairsTask | BareTask;

export type BareTask =
  | { readonly kind: "watch"; readonly name: string }
  | { readonly kind: "delete"; readonly name: string; readonly everyMs: number }
  | { readonly kind: "write"; readonly name: string; readonly perSecond: number };

export interface Look {
  /** Processor time of the process so far. */
  readonly cpuMicros: number;
  /** Locks granted, or bare calls answered, since the task was started. */
  readonly granted: number;
  readonly heapBytes: number;
  /** The longest time since the last look in which the event loop did not turn. */
  readonly stallMs: number;
}

/**
 * Times are in nanoseconds of the monotonic clock, which all processes of a machine share. For a cycle: the contender,
 * and when it requested, was granted and released the lock. For pairs: the time, how many locks and releases since the last one,
 * and how long one lock of them took. For a watch or a deletion: the time and the revision.
 */
export interface Stopped {
  readonly journal: readonly number[];
}

export type Answer = { readonly ok: unknown } | { readonly error: string };
