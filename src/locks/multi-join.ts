import type { CallPolicy } from "../etcd/retry.js";
import { Backoff } from "../etcd/backoff.js";
import type { KeyValue, Txn, TxnAnswer } from "../etcd/port.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { JoinedEntry, QueueEntry } from "../queue/entry.js";
import { joinRefused, own, put } from "../queue/txns.js";
import { LockTable } from "../queue/lock-table.js";
import type { Queue } from "../queue/queue.js";
import { pause } from "../async/clock.js";

/** Puts an entry into each of several queues in one transaction: all of them, with one create revision, or none. */
export class MultiJoin {
  constructor(
    private readonly lease: Lease,
    private readonly names: readonly string[],
  ) {}

  /** `alone`: all queues were empty, so all entries are granted after one request. */
  async join(
    again: () => boolean,
  ): Promise<{ readonly entries: readonly JoinedEntry[]; readonly alone: boolean }> {
    const { clock } = this.lease.services;
    const backoff = new Backoff(clock);
    for (;;) {
      const entries = this.names.map((name) =>
        LockTable.of(this.lease).queue(name).own.make({ kind: "all" }),
      );
      const tried = await this.#put(entries, tryTxn(entries), again);
      const first = this.#confirm(entries, tried);
      if (first) return { entries: first, alone: tried.succeeded };
      const joined = await this.#put(entries, joinTxn(entries), again);
      const second = this.#confirm(entries, joined);
      if (second) return { entries: second, alone: false };
      this.#undo(entries, joined);
      await pause(clock, backoff.nextMs(), this.lease.signal);
    }
  }

  async #put(entries: readonly QueueEntry[], txn: Txn, again: () => boolean): Promise<TxnAnswer> {
    const policy: CallPolicy = {
      ...this.lease.policy(`join the queues of ${this.names.map((name) => `"${name}"`).join(", ")}`),
      again,
      onUnanswered: () => entries.forEach((entry) => entry.attemptUnanswered()),
    };
    try {
      return await this.lease.services.client.txn(txn, policy);
    } catch (error) {
      await joinRefused(this.lease, txn, error);
      for (const entry of entries) {
        // The put may have been applied, or may be applied later.
        if (entry.inDoubt) this.#queueOf(entry).leaveInBackground(entry);
        else this.#discard(entry);
      }
      this.lease.signal.throwIfAborted();
      throw error;
    }
  }

  /** The entries with the revision of the transaction of ours that put all of them, or undefined if none did. */
  #confirm(
    entries: readonly QueueEntry[],
    { succeeded, header, ranges }: TxnAnswer,
  ): readonly JoinedEntry[] | undefined {
    const there = ranges.map((range) => range?.kvs[0]);
    const revision = succeeded ? header.revision : there[0]?.createRevision;
    const isOurs = (entry: QueueEntry, n: number): boolean =>
      this.#isOurs(entry, there[n]) && there[n]?.createRevision === revision;
    if (revision === undefined || (!succeeded && !entries.every(isOurs))) return undefined;
    return entries.map((entry) => {
      if (!succeeded) entry.foundExecuted();
      const joined = entry.confirmed(revision);
      this.#queueOf(entry).own.add(joined);
      return joined;
    });
  }

  /** Some keys belong to another client or were deleted by hand: removes ours, so that a join with other numbers can follow. */
  #undo(entries: readonly QueueEntry[], { ranges }: TxnAnswer): void {
    entries.forEach((entry, n) => {
      const there = ranges[n]?.kvs[0];
      if (there === undefined) return this.#discard(entry);
      if (!this.#isOurs(entry, there)) return this.#queueOf(entry).own.takenByAnother(entry);
      this.#queueOf(entry).leaveInBackground(entry.confirmed(there.createRevision));
    });
  }

  #discard(entry: QueueEntry): void {
    const queue = this.#queueOf(entry);
    queue.own.release(entry);
    queue.forgetIfIdle();
  }

  #queueOf({ name }: QueueEntry): Queue {
    return LockTable.of(this.lease).queue(name);
  }

  #isOurs(entry: QueueEntry, there: KeyValue | undefined): boolean {
    return there?.value === entry.value && there.leaseId === this.lease.leaseId;
  }
}

const common = (entries: readonly QueueEntry[]) => ({
  queues: entries.map(({ name }) => name),
  success: entries.map(put),
  failure: entries.map(own),
});

/** Puts the keys only if all queues are empty. */
const tryTxn = (entries: readonly QueueEntry[]): Txn => ({
  ...common(entries),
  compare: entries.map(({ name }) => ({ kind: "nothing in", ...queueRange(name) })),
});

const joinTxn = (entries: readonly QueueEntry[]): Txn => ({
  ...common(entries),
  compare: entries.map(({ key }) => ({ kind: "created at", key, revision: 0n })),
});
