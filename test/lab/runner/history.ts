// The lines that a run of the lab leaves behind. Times are CLOCK_MONOTONIC nanoseconds, which every process of one
// kernel shares; order on the server is by revision, never by time.

export type Operation =
  | ("acquire" | "tryAcquire" | "release" | "downgrade")
  | ("write" | "read" | "proclaim" | "observe" | "open" | "close");

interface At {
  readonly t: bigint;
  /** Process incarnation: "w2.1" is the third worker after its first kill -9. */
  readonly p: string;
}
interface OnHold extends At {
  /** Number of the acquire, unique within `p`; every step with the hold carries it too. */
  readonly id: number;
  readonly lock: string;
}
export interface Invoke extends OnHold {
  readonly k: "invoke";
  readonly f: Operation;
  /** The owner of the place: the `owner` that the session puts into its keys. */
  readonly owner?: string;
  /** All names of the call, if it requests several at once. */
  readonly names?: readonly string[];
  /** How many permits of a weighted semaphore the call takes. */
  readonly weight?: number;
  /** Recorded with the grant: who joined the queue was not told when. */
  readonly given?: true;
  /** Unique per write of the run. */
  readonly write?: string;
  /** Unique per proclamation of the run. */
  readonly value?: string;
}
/** `info` = the outcome is unknown. */
export interface Outcome extends OnHold {
  readonly k: "ok" | "fail" | "info";
  readonly f: Operation;
  readonly token?: bigint;
  /** How often its session has taken the lock with this key, if not once. */
  readonly turn?: number;
  readonly key?: string;
  /** On the ok of an acquire: the value of `lock.held` when it was granted. */
  readonly held?: boolean;
  /** Other shared holds may exist at the same time. */
  readonly shared?: boolean;
  readonly value?: string;
  readonly write?: string;
  readonly seq?: number;
  /** The revision in etcd's answer to a read or write. */
  readonly rev?: bigint;
  readonly err?: string;
  /** The message of the error. */
  readonly said?: string;
  /** On the fail of an aborted acquire: event-loop turns from `abort()` to the rejection. */
  readonly turns?: number;
}
/** The caller's own signal aborted while the acquire was pending. */
export interface Abort extends OnHold {
  readonly k: "abort";
}
/** `lock.held`, read right before a side effect; `t` was taken before the reading. */
export interface Claim extends OnHold {
  readonly k: "claim";
  readonly token: bigint;
  readonly held: boolean;
  /** A call for the lock, in an async context that holds it, has resolved with this hold. */
  readonly entered?: true;
}
/** The hold's signal aborted: `released` by an ordinary release, otherwise the loss. One line per abort event. */
export interface End extends OnHold {
  readonly k: "end";
  readonly token: bigint;
  readonly reason: "released" | "expired" | "revoked" | "deleted" | "closed";
  /** `held` was read as false in an earlier turn of the event loop. */
  readonly late?: true;
}
/** Its holder listens for waiters from here on. */
export interface Asks extends OnHold {
  readonly k: "asks";
  readonly token: bigint;
}
/** Its holder was told that this entry waits behind it. */
export interface Wanted extends OnHold {
  readonly k: "wanted";
  readonly token: bigint;
  readonly key: string;
  /** Create revision. */
  readonly rev: bigint;
}
/** The work on a shard began under the hold `id`: its first run, or another one after a failure. */
export interface WorkRun extends OnHold {
  readonly k: "run";
  readonly token: bigint;
  /** Of the member's session. */
  readonly owner: string;
  /** Of its lock. */
  readonly held: boolean;
}
/** It has settled. */
export interface WorkRan extends OnHold {
  readonly k: "ran";
  readonly token: bigint;
}
/** The work was told to stop because the shard moves. */
export interface Moved extends OnHold {
  readonly k: "moved";
  readonly token: bigint;
  /** Its member is closing. false: for less than its `drainMs`. */
  readonly drained?: boolean;
}
/** A call of `once` with a string, or of `share`, whose slot is "*". */
export interface Asked extends OnHold {
  readonly k: "asked";
  readonly slot: string;
  readonly rerun: "never" | "if_lost" | "if_failed";
  readonly fingerprint?: string;
}
/** What it was told: the status of its reply, or the code of its error. */
export interface Answered extends OnHold {
  readonly k: "answered";
  readonly slot: string;
  readonly status: string;
  /** The run that has returned the result. */
  readonly value?: string;
}
/** The work of a call began, under the hold `id`. */
export interface Worked extends OnHold {
  readonly k: "worked";
  readonly slot: string;
  readonly token: bigint;
  /** The `id` of the call. */
  readonly ask: number;
  readonly rerun: Asked["rerun"];
}
/** It ended, without any other trouble. */
export interface SettledWork extends OnHold {
  readonly k: "settled-work";
  readonly slot: string;
  readonly token: bigint;
  readonly ask: number;
  readonly fails: boolean;
}
/** A call for a latch, its counter, a barrier, or a double barrier. */
export type Meeting =
  | ("countDown" | "wait" | "count" | "reset" | "enlist" | "counter" | "quit")
  | ("hold" | "release" | "pass")
  | ("enter" | "leave");
export interface Called extends OnHold {
  readonly k: "called";
  readonly f: Meeting;
  /** How many counts, or how many members. */
  readonly number?: number;
  readonly onCrash?: "reject" | "continue" | "stay" | "break";
  /** Of the session that it uses. */
  readonly owner?: string;
  /** The ID of a count. */
  readonly item?: string;
  /** Names what its calls have in common: those of one counter, or of one member in a round. */
  readonly of?: number;
  /** Its `timeoutMs`, or the default. */
  readonly limitMs?: number;
  /** Its caller may give up. */
  readonly quits?: true;
}
/** Its caller was told so: "ok", or the code of the error. */
export interface Returned extends OnHold {
  readonly k: "returned";
  readonly f: Meeting;
  readonly status: string;
  /** What is missing, or whether `hold` has closed it. */
  readonly n?: number;
  readonly why?: string;
  readonly phase?: string;
  /** Who is dead: with commas. */
  readonly owners?: string;
}
/** Its caller aborts it. */
export interface GaveUp extends OnHold {
  readonly k: "gave-up";
  readonly f: Meeting;
}
/** Who owns which shard at a revision, as a member sees it: fences with commas. */
export interface Viewed extends At {
  readonly k: "viewed";
  readonly lock: string;
  readonly rev: bigint;
  readonly fences: string;
}
/** A listener of a group of shards was called. */
export interface Told extends At {
  readonly k: "told";
  readonly what: "retried" | "failed" | "stuck";
  readonly lock: string;
  readonly shard?: number;
  readonly forMs?: number;
  readonly err?: string;
}
/** Nothing has disturbed the group for long: what this member sees of its owners, by shard, as fences with commas. */
export interface Settled extends At {
  readonly k: "settled";
  readonly lock: string;
  readonly count: number;
  readonly fences: string;
}
/** What one `observe()` reported about an election; without a token, there is no leader. */
export interface Observed extends At {
  readonly k: "observed";
  readonly lock: string;
  /** The number of this observation of the name, if a refused one was followed by another. */
  readonly n?: number;
  /** Create revision of the leader's key, and its modification revision. */
  readonly token?: bigint;
  readonly rev?: bigint;
  readonly value?: string;
}
/** The observation has ended. */
export interface Unobserved extends At {
  readonly k: "unobserved";
  readonly lock: string;
  readonly n?: number;
}
/** The worker's event loop was blocked for this long, up to `t`: what it would have recorded is recorded late. */
export interface Stall extends At {
  readonly k: "stall";
  readonly ms: number;
}
/**
 * What a fault does to the promises: a stopped worker records nothing, a killed one never records again; hindered calls
 * and streams are slow, fail or end; a taken place is deleted although its owner did nothing wrong; the wall clock
 * moves.
 */
export type Effect = "stops-worker" | "kills-worker" | "hinders" | "takes-place" | "moves-clock";
/**
 * The origin of the refusals of a fault. member: one member refuses, or some calls are refused, and another attempt
 * helps. token: a token is refused, and a new token helps. cluster: the whole cluster refuses, and nothing helps until
 * the fault ends.
 */
export type Refusal = "member" | "token" | "cluster";
export interface Nemesis extends At {
  readonly k: "nemesis";
  readonly fault: string;
  readonly effect: Effect;
  readonly on: boolean;
  /** What it hits: a worker's incarnation, a member's name, a key, or a lease. */
  readonly target: string;
  /** The revisions at which it took places, if it did. */
  readonly took?: readonly bigint[];
  /** It hinders only calls or watches: renewals succeed, and it must not cost a lease. */
  readonly sparesLeases?: boolean;
  /** The member that it hits ends the streams that require a leader: none stays silent for long. */
  readonly endsStreams?: boolean;
  /** It answers with refusals; without this, it delays, loses or breaks what it hinders. */
  readonly refuses?: Refusal;
  /** The machine of a stopped worker is suspended: its monotonic clock stands still meanwhile. */
  readonly suspends?: boolean;
  /** Only the main thread of the worker is stopped. */
  readonly blocks?: boolean;
}
/**
 * What etcd still had under the run's prefix, which leases the run added, and how many unused watches existed, at a
 * moment named by `when`.
 */
export interface Leftovers extends At {
  readonly k: "leftovers";
  /** idle: sessions are open, but no lock is wanted. end: every worker has ended. */
  readonly when: "idle" | "end";
  readonly keys: readonly string[];
  readonly leases: readonly string[];
  /** Counted on idle, if the ground can count them. */
  readonly watches?: number;
}
/**
 * What must never happen in a worker: an unhandled rejection, an uncaught exception, a warning, or a process that does
 * not end by itself.
 */
export interface Crash extends At {
  readonly k: "crash";
  readonly event: string;
  readonly err: string;
}
export type Step =
  | (Invoke | Outcome | Abort | Claim | End | Asks | Wanted | Observed | Unobserved)
  | (WorkRun | WorkRan | Moved | Told | Settled | Viewed)
  | (Asked | Answered | Worked | SettledWork)
  | (Called | Returned | GaveUp)
  | (Stall | Nemesis | Leftovers | Crash);

/** One event of etcd, as the observer's watch reported it. */
export interface ServerEvent {
  readonly rev: bigint;
  readonly type: "PUT" | "DELETE";
  readonly key: string;
  readonly create: bigint;
  readonly lease: string;
  readonly value: string;
  /** When the observer received it: never before it happened. */
  readonly tSeen: bigint;
  /** It was deleted with its lease. Only the simulation knows that. */
  readonly leaseEnded?: boolean;
}

/**
 * What a client has received about keys: deletions that one of its watches reported, or a read of them. Its own code has not run
 * since, so whatever it does later, it could know this.
 */
export interface Sight extends At {
  /** No state that it shows is later than this one. */
  readonly revision: bigint;
  /** Keys that it has put at the revision. */
  readonly put?: readonly string[];
  /** Keys that were deleted at the revision, or before. */
  readonly deleted?: readonly string[];
  /** `lease`: of the session whose transaction it is a part of. */
  readonly read?: {
    readonly lease: string | undefined;
    readonly key: string;
    readonly end: string | undefined;
    /** Younger keys were not asked for. */
    readonly maxCreateRevision: bigint | undefined;
    readonly found: readonly { readonly key: { toString(): string }; readonly createRevision: bigint }[];
  };
}

export interface Setting {
  readonly ttlSeconds: number;
  /** How long a worker's client waits for one answer; default 1000. */
  readonly requestTimeoutMs?: number;
  /** Set if a worker thread of each process renews its leases: the longest stall of the main thread that they survive. */
  readonly maxStallMs?: number;
  /** The number of etcd members. */
  readonly members?: number;
  /** The prefix of every lock's name. */
  readonly locks: string;
  /** Keys of the register: `${registers}${lock}`. */
  readonly registers: string;
  /** An observer has seen the events of etcd, some time after they happened. Otherwise, each is dated when it happened. */
  readonly observed?: boolean;
  /** The option of all sessions. */
  readonly releaseDelayMs?: number | undefined;
  /** The option of all calls that wait. */
  readonly maxWaiting?: number | undefined;
}
export interface Run {
  readonly history: readonly Step[];
  readonly server: readonly ServerEvent[];
  /** Events of the delay keys of entries, which `server` leaves out. */
  readonly delayKeys?: readonly ServerEvent[];
  /** Events of the keys of members of groups, which `server` leaves out, too. */
  readonly memberKeys?: readonly ServerEvent[];
  /** Events of the marks of `once` and `share`. */
  readonly marks?: readonly ServerEvent[];
  /** Events of the keys of latches and barriers. */
  readonly meetingKeys?: readonly ServerEvent[];
  /** Of all clients, in the order of time. Only a simulated run knows them. */
  readonly sights?: readonly Sight[];
  readonly setting: Setting;
}
