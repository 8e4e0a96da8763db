// The lines a run of the lab leaves behind. Times are CLOCK_MONOTONIC nanoseconds, which every process of one kernel
// shares; order on the server is by revision, never by time.

export type Operation =
  "acquire" | "tryAcquire" | "release" | "write" | "read" | "proclaim" | "observe" | "open" | "close";

interface At {
  readonly t: bigint;
  /** Process incarnation: "w2.1" is the third worker after its first kill -9. */
  readonly p: string;
}
interface OnHold extends At {
  /** Number of the acquire, unique within `p`; whatever is done with the hold carries it too. */
  readonly id: number;
  readonly lock: string;
}
export interface Invoke extends OnHold {
  readonly k: "invoke";
  readonly f: Operation;
  /** Whose place it is: the `owner` that the session puts into its keys. */
  readonly owner?: string;
  /** All names of the call, where it asks for several at once. */
  readonly names?: readonly string[];
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
  readonly key?: string;
  /** On the ok of an acquire: what `lock.held` said when it was granted. */
  readonly held?: boolean;
  /** Others may hold beside it. */
  readonly shared?: boolean;
  readonly value?: string;
  readonly write?: string;
  readonly seq?: number;
  /** The revision in etcd's answer to a read or write. */
  readonly rev?: bigint;
  readonly err?: string;
  /** The words of the error. */
  readonly said?: string;
  /** On the fail of an aborted acquire: turns of the event loop from `abort()` to the rejection. */
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
}
/** The hold's signal aborted: `released` by an ordinary release, else the loss. One line per abort event. */
export interface End extends OnHold {
  readonly k: "end";
  readonly token: bigint;
  readonly reason: "released" | "expired" | "revoked" | "deleted" | "closed";
}
/** What one `observe()` told of an election; without a token: nobody leads. */
export interface Observed extends At {
  readonly k: "observed";
  readonly lock: string;
  /** Which one of this name, where a refused one was followed by another. */
  readonly n?: number;
  /** Create revision of the leader's key, and its modification revision. */
  readonly token?: bigint;
  readonly rev?: bigint;
  readonly value?: string;
}
/** No more is listened to. */
export interface Unobserved extends At {
  readonly k: "unobserved";
  readonly lock: string;
  readonly n?: number;
}
/** The worker's event loop did not turn for so long, up to `t`: what it would have said it says late. */
export interface Stall extends At {
  readonly k: "stall";
  readonly ms: number;
}
/**
 * What a fault does to the promises: a stopped worker says nothing, a killed one never again; hindered calls and
 * streams are slow, fail or end; a taken place is gone though its owner did nothing wrong; the wall clock moves.
 */
export type Effect = "stops-worker" | "kills-worker" | "hinders" | "takes-place" | "moves-clock";
/**
 * Whose refusal a fault makes. One member refuses, or some calls are refused: another attempt helps. A token is refused:
 * a new token helps. The whole cluster refuses: nothing helps until the fault ends.
 */
export type Refusal = "member" | "token" | "cluster";
export interface Nemesis extends At {
  readonly k: "nemesis";
  readonly fault: string;
  readonly effect: Effect;
  readonly on: boolean;
  /** A worker's incarnation, a member's name, a key, a lease: whom it hits. */
  readonly target: string;
  /** The revisions by which it took places, where it did. */
  readonly took?: readonly bigint[];
  /** It hinders calls or watches only: renewals pass, and no lease may be lost by it. */
  readonly sparesLeases?: boolean;
  /** The member that it hits ends the streams that ask for a leader: none stays silent for long. */
  readonly endsStreams?: boolean;
  /** It answers with refusals; without this it delays, loses or breaks what it hinders. */
  readonly refuses?: Refusal;
}
/**
 * What etcd still had under the run's prefix, which leases the run added, and how many watches nobody needed, at a moment
 * named by `when`.
 */
export interface Leftovers extends At {
  readonly k: "leftovers";
  /** idle: sessions live, nothing wanted. end: every worker gone. */
  readonly when: "idle" | "end";
  readonly keys: readonly string[];
  readonly leases: readonly string[];
  /** Counted on idle, where the ground can tell. */
  readonly watches?: number;
}
/** What must never happen in a worker: an unhandled rejection, an uncaught exception, a warning, no end of its own. */
export interface Crash extends At {
  readonly k: "crash";
  readonly event: string;
  readonly err: string;
}
export type Step =
  (Invoke | Outcome | Abort | Claim | End | Observed | Unobserved) | (Stall | Nemesis | Leftovers | Crash);

/** One event of etcd, as the observer's watch told it. */
export interface ServerEvent {
  readonly rev: bigint;
  readonly type: "PUT" | "DELETE";
  readonly key: string;
  readonly create: bigint;
  readonly lease: string;
  readonly value: string;
  /** When the observer had it: never before it happened. */
  readonly tSeen: bigint;
}

export interface Setting {
  readonly ttlSeconds: number;
  /** How long a worker's client waits for one answer; default 1000. */
  readonly requestTimeoutMs?: number;
  /** How many etcd has. */
  readonly members?: number;
  /** Start of every lock's name. */
  readonly locks: string;
  /** Keys of the register: `${registers}${lock}`. */
  readonly registers: string;
}
export interface Run {
  readonly history: readonly Step[];
  readonly server: readonly ServerEvent[];
  readonly setting: Setting;
}
