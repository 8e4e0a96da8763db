// What the commands write with --json: one object on a line. docs/cli.md quotes all of this file below this line.
/** "unknown": no entry shows it. */
export type KindJson = "mutex" | "rwlock" | "semaphore" | "election" | "unknown";

/** A holder or a waiter. Revisions and lease IDs are decimal strings: they do not fit into a number of JavaScript. */
export interface ContenderJson {
  readonly name: string;
  readonly key: string;
  readonly state: "holding" | "waiting";
  /** Create revision of the key: the fence of an exclusive holder. */
  readonly revision: string;
  readonly leaseId: string;
  /** `leaseId` in hexadecimal, as etcdctl takes it. */
  readonly lease: string;
  /** Missing for entries of other clients, as is `since`. */
  readonly owner?: string;
  /** ISO 8601: when it joined the queue, by its own clock. */
  readonly since?: string;
  /** Of its lease; missing in `ls`, and if the key has no lease. */
  readonly ttlRemainingMs?: number;
}

/** `ls`: a line for each lock. */
export interface LockJson {
  readonly name: string;
  readonly kind: KindJson;
  readonly holder: ContenderJson | null;
  readonly waiters: number;
}

/** `show`. */
export interface QueueJson {
  readonly name: string;
  readonly kind: KindJson;
  readonly holders: readonly ContenderJson[];
  readonly waiters: readonly ContenderJson[];
  /** How many there are, whatever --limit is. */
  readonly total: { readonly holders: number; readonly waiters: number };
  /** The revision of etcd whose state this is. */
  readonly revision: string;
}

/** `release`: null if there was nobody to remove, or the answer was no. */
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
    readonly fence: string;
    readonly revision: string;
    readonly leaseId: string;
  } | null;
}

/** `completion`. */
export interface CompletionJson {
  readonly shell: string;
  readonly script: string;
}

/** The last line on standard error of any command that fails. */
export interface ErrorJson {
  readonly error: { readonly message: string; readonly cure?: string; readonly exitCode: number };
}
