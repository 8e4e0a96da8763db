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
  /** Ends the task and closes what was opened. Answered by `Stopped`. */
  | { readonly do: "stop" };

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
  /** Clients that poll stop after this time. */
  readonly forMs: number;
  /** Whether to measure stalls of the event loop. */
  readonly stalls?: boolean;
}

export type Task =
  | CycleTask
  /** For bare requests only: */
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
 * and when it requested, was granted and released the lock. For a watch or a deletion: the time and the revision.
 */
export interface Stopped {
  readonly journal: readonly number[];
}

export type Answer = { readonly ok: unknown } | { readonly error: string };
