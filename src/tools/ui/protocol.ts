/** What the server sends to the page, as JSON in server-sent events. Times are milliseconds since 1970. */

/** A queue in the overview. */
export interface Row {
  readonly name: string;
  readonly kind: "mutex" | "rwlock" | "semaphore" | "election" | "members" | "unknown";
  /** The owner of the first holder, or its key; null: the queue is free. */
  readonly holder: string | null;
  /** When that holder got it, or joined the queue if the server has not seen it get it. */
  readonly since: number | null;
  readonly holders: number;
  readonly waiters: number;
  /** Holds that ended with their lease, since the server looks. */
  readonly losses: number;
  /** The client of the holder has died: nobody holds, and the next one waits for the rest of `releaseDelayMs`. */
  readonly isDelay: boolean;
  /** true: the session of the first holder may keep the key while no caller has the lock. */
  readonly sticky?: boolean;
}

/** Hand-overs in each of the last minutes, up to that of `now`: at most an hour, and none from before the server looked. */
export type PerMinute = readonly number[];

/** The event `full`: the first of a stream, and of one that was too far behind. The page forgets what it had before. */
export interface FullMessage {
  readonly now: number;
  /** The rest follows at once, in events `change`. */
  readonly more: boolean;
  readonly prefix: string;
  /** The hosts of the etcd whose locks these are. */
  readonly hosts: readonly string[];
  /** Whether the viewer may release. */
  readonly release: boolean;
  /** Why the rows may be old; null: they are not. */
  readonly problem: string | null;
  /** When etcd has answered last: what is shown is as old as that. */
  readonly answeredAt: number;
  /** Since when hand-overs are counted. */
  readonly countedSince: number;
  readonly perMinute: PerMinute;
  readonly rows: readonly Row[];
}

/** The event `change`: rows that differ from what the stream has sent before. */
export interface ChangeMessage {
  readonly now: number;
  /** The rest follows at once. */
  readonly more: boolean;
  readonly problem: string | null;
  /** When etcd has answered last: what is shown is as old as that. */
  readonly answeredAt: number;
  /** Since when hand-overs are counted. */
  readonly countedSince: number;
  readonly perMinute: PerMinute;
  readonly rows: readonly Row[];
  readonly gone: readonly string[];
}

/** A holder or a waiter. */
export interface Person {
  readonly key: string;
  /** In hexadecimal, as etcdctl has it. */
  readonly lease: string;
  readonly owner: string | null;
  /** Why its caller wants the lock, or holds it. */
  readonly reason: string | null;
  /** How many permits of a weighted semaphore it takes, and how many there are. */
  readonly weighted: { readonly weight: number; readonly permits: number } | null;
  /** Of a call of a mutex with priorities. */
  readonly priority: number | null;
  /** The create revision: the fence of a holder. */
  readonly revision: string;
  /** When it joined the queue, by its own clock. */
  readonly since: number | null;
  readonly ttlMs: number | null;
  /** Whether this is what a dead holder has left: its key stays while `releaseDelayMs` of its session runs. */
  readonly isDelay: boolean;
  /** Whether its session may keep the key while no caller has the lock. */
  readonly sticky: boolean;
  /** Whether no caller has the lock, as the server knows of its own sessions. */
  readonly idle: boolean;
}

/** How a hold ended. */
export type HoldEnd = "released" | "lease ended" | "unknown";

/** One hold of the past, or of now. */
export interface Past {
  /** The owner, or the key. */
  readonly holder: string;
  readonly revision: string;
  readonly from: number;
  /** The server has not seen its begin: `from` is when it joined the queue. */
  readonly fromIsJoin: boolean;
  /** null: it holds now. */
  readonly to: number | null;
  readonly end: HoldEnd | null;
}

/** A stretch of time in which a shard had one owner: an index into `members`, and its begin and end; null: it owns it now. */
export type ShardSpan = readonly [member: number, from: number, to: number | null];

/** Who has owned the shards of a group, as the server has seen it. */
export interface ShardPicture {
  /** The highest shard that has or had an owner, and one. */
  readonly count: number;
  /** The time that the picture shows, up to that of the message. */
  readonly spanMs: number;
  /** How often a shard had another owner than before in that time. */
  readonly moves: number;
  /** Those with the most shards first: the owners of their locks, cut if they are long. */
  readonly members: readonly { readonly name: string; readonly shards: number }[];
  /** All others together; in spans and loads, their index is the one after the last of `members`. */
  readonly others: { readonly members: number; readonly shards: number };
  /** By shard; null: there are too many. */
  readonly lanes: readonly (readonly ShardSpan[])[] | null;
  /** By member: how many shards it had at moments that lie equally far apart, the first at the begin of the picture and the last now. */
  readonly loads: readonly (readonly number[])[] | null;
}

export interface RunCounts {
  readonly running: number;
  readonly done: number;
  readonly failed: number;
  readonly lost: number;
  readonly missed: number;
}

/** The event `detail`: one queue. */
export interface DetailMessage {
  readonly now: number;
  readonly name: string;
  readonly kind: Row["kind"];
  readonly holders: readonly Person[];
  readonly waiters: readonly Person[];
  readonly total: { readonly holders: number; readonly waiters: number };
  /** What the leader of an election has put; null: it is none, or there is none. */
  readonly value: string | null;
  /** The oldest first. */
  readonly history: readonly Past[];
  readonly perMinute: PerMinute;
  readonly countedSince: number;
  readonly problem: string | null;
  /** null: it is no group of members, or the group has no shards. */
  readonly shards: ShardPicture | null;
  /** How many of the youngest 100 slots of `once` of this name are in which state; null: none is known, or the server may not read them. */
  readonly runs: RunCounts | null;
}

/** The body of `POST release`. */
export interface ReleaseRequest {
  readonly name: string;
  readonly key: string;
  readonly revision: string;
}

/** The header that a form or an image of another site cannot send. */
export const RELEASE_HEADER = "x-leasehold-release";
