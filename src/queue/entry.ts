import type { Compare, KeyValue, Operation, Range, Txn } from "../etcd/port.js";
import { entryKey, type EntryValue } from "../keys.js";
import { exclusive, type LockMode } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { OwnedKey } from "../session/late-put-sweeper.js";

/** One key of ours in a queue, identified by key and create revision, never by the key alone. */
export class QueueEntry implements OwnedKey {
  readonly key: string;
  readonly value: string;
  /** Create revision; 0n until etcd has reported it. */
  revision = 0n;
  /** Attempts to put the key that were sent and not answered: each may still be applied. */
  unanswered = 0;
  /** Create revision of the entry that its join found before it, if the answer contained one. */
  joinedBehind: bigint | undefined;
  /** It is granted. */
  held = false;
  /** No caller needs it any longer. */
  leaving = false;

  constructor(
    readonly lease: Lease,
    readonly name: string,
    /** The n of `name/<lease>-n`. */
    readonly n: number,
    readonly mode: LockMode = exclusive,
    /** A campaign puts its candidate's value, and an adopted entry keeps its value. */
    value?: string,
  ) {
    this.key = entryKey(this.directory, lease.leaseId, n);
    this.value = value ?? JSON.stringify(this.#newValue());
  }

  /** Its key is `directory/<lease>`. */
  get directory(): string {
    return `${this.name}${this.mode.folder}`;
  }

  /** An attempt to put the key was executed earlier: an unanswered one of ours, or one that an intermediary sent twice. */
  foundExecuted(): void {
    if (this.unanswered > 0) this.unanswered--;
    else this.lease.connection.path.requestsAreRepeated = true;
  }

  is(kv: KeyValue): boolean {
    return kv.createRevision === this.revision && kv.key.toString() === this.key;
  }

  #newValue(): EntryValue {
    const { clock } = this.lease.connection;
    const { permits } = this.mode;
    return {
      owner: this.lease.owner,
      since: clock.date().toISOString(),
      id: clock.randomId().toString(36),
      ...(permits !== undefined && { permits }),
    };
  }
}

export const put = ({ key, value, lease }: QueueEntry): Operation => ({
  kind: "put",
  key,
  value,
  leaseId: lease.leaseId,
});
export const own = ({ key }: QueueEntry): Operation => ({ kind: "range", key });
const ranges = (asked: readonly Range[]): Operation[] => asked.map((range) => ({ kind: "range", ...range }));

/** Puts the key unless it exists, and reads the other contenders that the lock mode asks for. */
export const joinTxn = (entry: QueueEntry): Txn => ({
  ...joinBehindTxn(entry),
  success: [put(entry), ...ranges(entry.mode.asksToJoin(entry))],
});

/** The same for a session that already has an entry under the name, which this one waits for. */
export const joinBehindTxn = (entry: QueueEntry): Txn => ({
  queues: [entry.name],
  compare: [{ kind: "created at", key: entry.key, revision: 0n }],
  success: [put(entry)],
  failure: [own(entry)],
});

/** Puts the key if the compares hold. Otherwise it writes nothing and no watcher is notified. */
export const tryTxn = (entry: QueueEntry, when: readonly Compare[]): Txn => ({
  queues: [entry.name],
  compare: when,
  success: [put(entry)],
  failure: [own(entry)],
});

/** Writes the key again, unchanged, so that its watchers are notified of the grant. */
export const announceGrantTxn = (entry: QueueEntry): Txn => ({
  queues: [entry.name],
  compare: [{ kind: "created at", key: entry.key, revision: entry.revision }],
  success: [put(entry)],
  failure: [],
});

/** Deletes exactly this entry, and reads which entry is first after it. */
export function leaveTxn(entry: QueueEntry, asked: readonly Range[]): Txn {
  const tell = ranges(asked);
  return {
    queues: [entry.name],
    // Before its create revision is known, its value shows that it is ours.
    compare: [
      entry.revision === 0n
        ? { kind: "value is", key: entry.key, value: entry.value }
        : { kind: "created at", key: entry.key, revision: entry.revision },
    ],
    success: [{ kind: "delete", key: entry.key }, ...tell],
    failure: tell,
  };
}
