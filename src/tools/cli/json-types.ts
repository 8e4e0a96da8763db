// What the commands write with --json: one object on a line. `node scripts/cli-json.js` writes docs/cli.schema.json from it, with these
// comments.

/** "members": no lock, but the members of a group, each of which counts as a holder. "unknown": no entry shows it. */
export type KindJson = "mutex" | "rwlock" | "semaphore" | "election" | "members" | "unknown";

/**
 * A holder or a waiter. In all lines, revisions, fences and lease IDs are decimal strings, because they do not fit into a
 * number of JavaScript, and a field whose name ends with `Ms` is a number of milliseconds.
 */
export interface ContenderJson {
  readonly name: string;
  readonly key: string;
  /** "dead": its lease has ended without a release, and the release delay of its session still keeps its place. */
  readonly state: "holding" | "waiting" | "dead";
  /** Create revision of the key: the fence of an exclusive holder. */
  readonly revision: string;
  /** "0" for a key without a lease. */
  readonly leaseId: string;
  /** `leaseId` in hexadecimal, 16 digits, as etcdctl prints and takes it. */
  readonly lease: string;
  /** Missing for entries of other clients, as is `since`. */
  readonly owner?: string;
  /** Why its caller wants the lock, or holds it, cut at 256 bytes; missing if the caller has not said so. */
  readonly reason?: string;
  /** true: its session may keep the key while no caller has the lock. A "holding" one is held or kept: only its own process knows which. */
  readonly sticky?: boolean;
  /** How many permits of a weighted semaphore it takes, and how many there are by its own word. */
  readonly weighted?: { readonly weight: number; readonly permits: number };
  /** -1000 to 1000; missing unless the calls for its name have priorities. */
  readonly priority?: number;
  /** ISO 8601: when it joined the queue, by its own clock. */
  readonly since?: string;
  /** What a leader or a candidate has campaigned with or proclaimed, cut at 256 bytes. */
  readonly value?: string;
  /** What is left of its lease, and so until the place of a dead one is free; missing in `top`, in `ls` unless it is dead, and without a lease. */
  readonly ttlRemainingMs?: number;
}

/** How many there are, dead ones too, however many of them a line lists. */
export interface TotalJson {
  readonly holders: number;
  readonly waiters: number;
}

/** `ls`: a line for each lock. */
export interface LockJson {
  readonly name: string;
  readonly kind: KindJson;
  /** The first one. */
  readonly holder: ContenderJson | null;
  readonly total: Pick<TotalJson, "waiters">;
}

/** `show`. */
export interface QueueJson {
  readonly name: string;
  readonly kind: KindJson;
  readonly holders: readonly ContenderJson[];
  readonly waiters: readonly ContenderJson[];
  readonly total: TotalJson;
  /** The revision of etcd whose state this is. */
  readonly revision: string;
  /** Missing if no slot of `once` of this name is known, or the user may not read their marks. */
  readonly runs?: RunsJson;
}

/** How many of the youngest 100 slots of `once` are in which state. */
export interface RunsJson {
  readonly running: number;
  readonly done: number;
  readonly failed: number;
  readonly lost: number;
  readonly missed: number;
}

/** `release`: null if there was no entry to remove, or the answer was no. */
export interface ReleaseJson {
  readonly name: string;
  readonly released: ContenderJson | null;
}

/** `leader`, and each line of `observe`. */
export interface LeaderJson {
  readonly name: string;
  readonly leader: {
    readonly key: string;
    readonly value: string;
    /** Create revision of the key. */
    readonly fence: string;
    /** Modification revision of the key: increases with each proclamation. */
    readonly modRevision: string;
    /** As in `ContenderJson`. */
    readonly leaseId: string;
    readonly lease: string;
  } | null;
}

/** A candidate of an election. */
export interface CandidateJson {
  readonly key: string;
  /** What it has campaigned with or last proclaimed, cut at 65536 characters. */
  readonly value: string;
  /** Create revision of the key: its place in the order, and its fence once it leads. */
  readonly revision: string;
  /** As in `ContenderJson`. */
  readonly leaseId: string;
  readonly lease: string;
  readonly leads: boolean;
  /** It has said of itself what follows, so that a leader can hand over to it. */
  readonly transferable: boolean;
  /** The owner of its session; missing unless it is transferable, as are the two below. */
  readonly owner?: string;
  /** -1000 to 1000. */
  readonly priority?: number;
  readonly labels?: Readonly<Record<string, string>>;
}

/** `candidates`. */
export interface CandidatesJson {
  readonly name: string;
  /** In the order of the queue, the leader first. */
  readonly candidates: readonly CandidateJson[];
}

/** A member of a group, as it has said of itself. */
export interface MemberJson {
  /** The same after a restart, if the member has been given one. */
  readonly id: string;
  /** What it tells the others, such as its address. */
  readonly value: string;
  /** The owner of its session. */
  readonly owner: string;
  /** How much it takes in relation to the others. */
  readonly capacity: number;
  readonly zone?: string;
  /** A "joining" or "draining" one takes nothing new. */
  readonly state: "joining" | "active" | "draining";
  readonly key: string;
  /** Create revision of the key: the order of the joins. */
  readonly revision: string;
  /** As in `ContenderJson`. */
  readonly leaseId: string;
  readonly lease: string;
}

/** `members`. With --watch, a line after each change. */
export interface MembersJson {
  readonly name: string;
  /** In the order of their joins. */
  readonly members: readonly MemberJson[];
  /** The revision of etcd whose state this is. */
  readonly revision: string;
}

/** A member of a group that shares out shards. */
export interface ShardMemberJson extends MemberJson {
  /** The number of shards of the group, as this member has it. While it is not that of the group, the member owns none. */
  readonly count: number;
  /** Shards that it leaves to others for a while, because its work on them has failed. */
  readonly declines: readonly number[];
  /** How many its capacity gives it, with two decimals; 0: it takes none. */
  readonly share: number;
  /** Those that it owns. */
  readonly shards: readonly number[];
}

/** A shard that another member should own, or that nobody owns. */
export interface MoveJson {
  readonly shard: number;
  /**
   * "waiting": the next owner stands in the queue, and gets it as soon as the work of the present one has settled. "planned": the rule names
   * another owner, which is not in the queue yet. "free": nobody owns it.
   */
  readonly state: "waiting" | "planned" | "free";
  /** The `id` of the owner; null: nobody, or no member. */
  readonly from: string | null;
  /** The same of the next owner. */
  readonly to: string | null;
  /** The present one; missing if nobody owns it. */
  readonly fence?: string;
}

/** `shards`. With --watch, a line after each change. */
export interface ShardsJson {
  readonly name: string;
  /** The number of shards; 0 without members. */
  readonly count: number;
  /** In the order of their joins. */
  readonly members: readonly ShardMemberJson[];
  /** How many more than its share the member has that is the most above it, and the one that is the most below; null if no member takes shards. */
  readonly balance: { readonly most: number; readonly least: number } | null;
  readonly moves: readonly MoveJson[];
  /** The revision of etcd whose state this is. */
  readonly revision: string;
}

/** `once`: a line for each slot, the youngest first. */
export interface OnceRecordJson {
  /** A string of at most 1024 characters, unless the slot is a whole number. */
  readonly slot: number | string;
  /** "lost": it was begun, and never ended. "missed": it was not to be run. */
  readonly state: "running" | "done" | "failed" | "lost" | "missed";
  /** The fence of its lock; missing if it is not known, as are the three below. */
  readonly fence?: string;
  /** Cut at 256 characters. */
  readonly owner?: string;
  /** ISO 8601: when its call began, by its own clock. */
  readonly since?: string;
  /** ISO 8601: when its work ended, by the same clock; missing if it has not. */
  readonly ended?: string;
  /** What its work threw; of a command, its exit code is in `message`. */
  readonly error?: { readonly name: string; readonly code?: string; readonly message: string };
}

/** `run`, on standard error: another client holds the lock. A line after each change, every two seconds at most. */
export interface WaitingJson {
  readonly event: "waiting";
  readonly name: string;
  /** The first one. */
  readonly holder: ContenderJson;
  readonly total: TotalJson;
  /** Entries before this one in the queue, the holders included: as in `LockTimeoutError`. A call that waits for the end of a run has no place in it. */
  readonly ahead: number;
}

/** `run` and `lead`, on standard error: the lock is held, and the command runs. */
export interface StartedJson {
  readonly event: "started";
  readonly name: string;
  readonly key: string;
  /** Create revision of the key; missing for readers and permits. */
  readonly fence?: string;
  /** As in `ContenderJson`. */
  readonly leaseId: string;
  readonly lease: string;
  /** The ID of the command, and of its process group. */
  readonly pid: number;
}

/** `run` and `lead` with --on-wanted, on standard error: another client waits for the lock, and the command was sent the signal. */
export interface WantedJson {
  readonly event: "wanted";
  readonly name: string;
  /** As in the flag. */
  readonly signal: string;
  /** The first in line, if several wait. */
  readonly waiter: ContenderJson;
  readonly message: string;
}

/** `run` and `lead`, on standard error: SIGTERM was sent to the command, or to what it has left behind. */
export interface EndingJson {
  readonly event: "ending";
  readonly name: string;
  /** "unanswered": etcd has not renewed the lease. */
  readonly reason: "unanswered" | "max_hold" | "left_behind";
  readonly message: string;
}

/**
 * `run` and `lead`, on standard error. "renewed": etcd has renewed the lease after SIGTERM was sent. "killed": SIGKILL was sent
 * after the grace. "denied": the command belongs to another user, and cannot be ended. "unguarded": the guardian has ended.
 */
export interface ControlJson {
  readonly event: "renewed" | "killed" | "denied" | "unguarded";
  readonly name: string;
  readonly message: string;
}

/** `run` and `lead`, on standard error: the command has been ended. */
export interface LostJson {
  readonly event: "lost";
  readonly name: string;
  readonly reason: "lost" | "unanswered" | "max_hold";
  /** As in `LockLostError`; missing if the lock was released. */
  readonly loss?: "expired" | "revoked" | "deleted" | "closed" | "max_hold";
  readonly message: string;
  /** The command may have run for so long beside the next holder. */
  readonly ranOnMs: number;
  /** The guardian has killed the command, because leasehold did not run. */
  readonly byGuardian: boolean;
  /** Exit code of the command. */
  readonly commandCode: number;
}

/** On standard error. `lead`: a campaign has failed. `run`: its session was lost during the wait, and it joins the queue again, at its end. */
export interface RetryingJson {
  readonly event: "retrying";
  readonly name: string;
  readonly message: string;
  /** Until the next attempt. */
  readonly delayMs: number;
}

/** `run --once`, on standard error: the command has run, and its slot does not count as done. */
export interface SlotJson {
  readonly event: "slot";
  readonly name: string;
  /** A string unless the key is a whole number. */
  readonly slot: number | string;
  /** "lost": a signal or leasehold ended the command, or asked it to stop. "failed": it exited with a nonzero code. */
  readonly state: "lost" | "failed";
  /** Exit code of the command. */
  readonly commandCode: number;
  readonly message: string;
}

/** `run --once`, on standard error: the command was not started. */
export interface OnceJson {
  readonly event: "once";
  readonly name: string;
  /** A string unless the key is a whole number. */
  readonly slot: number | string;
  /** As in `OnceResult`. */
  readonly reason: "done" | "running" | "lost" | "expired" | "held" | "missed";
  /** The owner of the other run; missing if it is not known, as are the two below. */
  readonly owner?: string;
  /** ISO 8601: when that run began, by its own clock. */
  readonly since?: string;
  /** That run has failed: its command ended with another code than 0, or its work threw. */
  readonly failed?: boolean;
  /** With --keep-output: the exit code of the command of that run, with which this one ends, too. Its output is on standard output. */
  readonly commandCode?: number;
  /** Of that output, only the end was kept. */
  readonly cut?: boolean;
  readonly message: string;
}

/** A line of `run` or `lead` on standard error. Their standard output belongs to the command. */
export type RunJson =
  | WaitingJson
  | StartedJson
  | WantedJson
  | EndingJson
  | ControlJson
  | LostJson
  | RetryingJson
  | SlotJson
  | OnceJson;

/** `top`: the locks that changed since the line before; in the first line, all. */
export interface LocksJson {
  readonly event: "locks";
  /** The revision of etcd whose state this is. */
  readonly revision: string;
  readonly locks: readonly {
    readonly name: string;
    readonly kind: KindJson;
    /** The first ten. */
    readonly holders: readonly ContenderJson[];
    readonly total: TotalJson;
    /** Since the start of the command. */
    readonly grants: number;
  }[];
  /** Names without a holder or a waiter since the last line. */
  readonly gone: readonly string[];
}

/** `top`: at the start, and whenever etcd begins or ceases to answer. */
export interface ContactJson {
  readonly event: "etcd";
  readonly answers: boolean;
  /** Why it does not. */
  readonly message?: string;
}

/** `doctor`: a line for each check. */
export interface FindingJson {
  /** A URL; null: the cluster. */
  readonly endpoint: string | null;
  readonly check: string;
  /** "skip": it could not be checked. */
  readonly mark: "ok" | "warn" | "fail" | "skip";
  readonly message: string;
  /** What to do. */
  readonly hint?: string;
  /** Each check has its own. */
  readonly measured?: {
    readonly connectMs?: number;
    readonly daysLeft?: number;
    readonly version?: string;
    readonly skewMs?: number;
    readonly dbBytes?: number;
    readonly quotaBytes?: number;
    readonly medianMs?: number;
    readonly theirsMs?: number;
    readonly oursMs?: number;
    readonly durationMs?: number;
    readonly lockMs?: number;
    readonly releaseMs?: number;
  };
}

/** `doctor`, the last line: how many checks have each mark. */
export interface SummaryJson {
  readonly summary: Readonly<Record<FindingJson["mark"], number>>;
}

/** `ui`. */
export interface PageJson {
  readonly url: string;
  readonly prefix: string;
  /** Whether the page may release by force. */
  readonly release: boolean;
}

/** `dev`, once its etcd answers. */
export interface DevJson {
  readonly hosts: readonly string[];
  /** The release whose answers it gives. */
  readonly version: string;
}

/** `demo`: a line for each promise. */
export interface PromiseJson {
  readonly promise: string;
  readonly kept: boolean;
  /** What was counted. */
  readonly finding: string;
  /** Each violation. */
  readonly broken: readonly string[];
}

/** `completion`. */
export interface CompletionJson {
  readonly shell: string;
  readonly script: string;
}

/** The last line on standard error of any command of leasehold that fails. */
export interface ErrorJson {
  readonly error: { readonly message: string; readonly hint?: string; readonly exitCode: number };
}
