// The lines a stress run leaves behind. Times are CLOCK_MONOTONIC nanoseconds, which every process of one
// kernel shares; order on the server is by revision, never by time.

export type Operation = "acquire" | "tryAcquire" | "release" | "write" | "read" | "open" | "close";

interface At {
  readonly t: bigint;
  /** Process incarnation: "w2.1" is the second worker after its first kill -9. */
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
  /** Unique per write of the run. */
  readonly write?: string;
}
/** `info` = the outcome is unknown. */
export interface Outcome extends OnHold {
  readonly k: "ok" | "fail" | "info";
  readonly f: Operation;
  readonly token?: bigint;
  readonly key?: string;
  /** On the ok of an acquire: what `lock.held` said when it was granted. */
  readonly held?: boolean;
  readonly write?: string;
  readonly seq?: number;
  /** The revision in etcd's answer to a read or write. */
  readonly rev?: bigint;
  readonly err?: string;
}
/** `lock.held`, read right before a side effect; `t` was taken before the reading. */
export interface Claim extends OnHold {
  readonly k: "claim";
  readonly token: bigint;
  readonly held: boolean;
}
/** The hold's signal aborted by anything but its release. */
export interface Lost extends OnHold {
  readonly k: "lost";
  readonly token: bigint;
  readonly reason: string;
}
export type WorkerFault = "pause-worker" | "kill-worker";
/** To a member, or to the link between the workers and a member. */
export type EtcdFault = "pause-member" | "kill-member" | "cut-link" | "lose-answers" | "slow-link";
export interface Nemesis extends At {
  readonly k: "nemesis";
  readonly fault: WorkerFault | EtcdFault;
  readonly on: boolean;
  /** A worker's incarnation, or the name of the member whose fault, or whose link's, it is. */
  readonly target: string;
}
/** What etcd still had under the run's prefix, and which leases the run added, at a moment named by `when`. */
export interface Leftovers extends At {
  readonly k: "leftovers";
  /** idle: sessions live, nothing wanted. end: every worker gone. */
  readonly when: "idle" | "end";
  readonly keys: readonly string[];
  readonly leases: readonly string[];
}
/** What must never happen in a worker: an unhandled rejection, an uncaught exception, a warning, no end of its own. */
export interface Crash extends At {
  readonly k: "crash";
  readonly event: string;
  readonly err: string;
}
export interface Remark extends At {
  readonly k: "remark";
  readonly text: string;
}
export type Step = Invoke | Outcome | Claim | Lost | Nemesis | Leftovers | Crash | Remark;

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
  /** Start of every lock's name. */
  readonly locks: string;
  /** Keys of the register: `${registers}${lock}`. */
  readonly registers: string;
  /** This etcd may revoke living leases when a member that led goes on after a pause (etcd#15247). */
  readonly revokesEarly?: boolean;
}
export interface Run {
  readonly history: readonly Step[];
  readonly server: readonly ServerEvent[];
  readonly setting: Setting;
}
export type Invariant = (run: Run) => string[];

/** One key in a lock's queue, from its creation to its deletion. */
export interface Place {
  readonly lock: string;
  readonly key: string;
  readonly lease: string;
  /** From the value that leasehold writes; undefined for other clients. */
  readonly owner: string | undefined;
  readonly create: bigint;
  readonly seen: bigint;
  deleted: bigint | undefined;
  deletedSeen: bigint | undefined;
  /** The revision from which on no older place lived; undefined = it never came so far. */
  headSince: bigint | undefined;
  headSeen: bigint | undefined;
}
export interface Span {
  readonly from: bigint;
  readonly to: bigint;
}
/** A granted acquire and the stretches of time in which its process claimed to hold. */
export interface Hold {
  readonly p: string;
  readonly id: number;
  readonly lock: string;
  readonly token: bigint;
  readonly key: string | undefined;
  readonly invoked: bigint;
  readonly granted: bigint;
  readonly heldWhenGranted: boolean;
  readonly claims: readonly Claim[];
  readonly spans: readonly Span[];
}
