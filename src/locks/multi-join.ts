import type { CallPolicy } from "../etcd/retry.js";
import { backoff } from "../etcd/backoff.js";
import type { KeyValue, Txn, TxnAnswer } from "../etcd/port.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Lease } from "../session/lease.js";
import { own, put, type QueueEntry } from "../queue/entry.js";
import { Queue } from "../queue/queue.js";
import { joinRefused } from "../queue/refused-join.js";
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
  ): Promise<{ readonly entries: readonly QueueEntry[]; readonly alone: boolean }> {
    for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
      const entries = this.names.map((name) => Queue.of(this.lease, name).own.make());
      const tried = await this.#put(entries, tryTxn(entries), again);
      if (this.#confirm(entries, tried)) return { entries, alone: tried.succeeded };
      const joined = await this.#put(entries, joinTxn(entries), again);
      if (this.#confirm(entries, joined)) return { entries, alone: false };
      this.#undo(entries, joined);
      await pause(this.lease.connection.clock, wait.duration, this.lease.signal);
    }
  }

  async #put(entries: readonly QueueEntry[], txn: Txn, again: () => boolean): Promise<TxnAnswer> {
    const policy: CallPolicy = {
      ...this.lease.policy(`join the queues of ${this.names.map((name) => `"${name}"`).join(", ")}`),
      again,
      onUnanswered: () => entries.forEach((entry) => void entry.unanswered++),
    };
    try {
      return await this.lease.connection.client.txn(txn, policy);
    } catch (error) {
      await joinRefused(this.lease, txn, error);
      for (const entry of entries) {
        if (entry.unanswered === 0) this.#discard(entry);
        // The put may have been applied, or may be applied later.
        else this.#queueOf(entry).leaveInBackground(entry);
      }
      this.lease.signal.throwIfAborted();
      throw error;
    }
  }

  /** Whether one transaction of ours put all entries into their queues. If so, its revision becomes theirs. */
  #confirm(entries: readonly QueueEntry[], { succeeded, header, ranges }: TxnAnswer): boolean {
    const there = ranges.map((range) => range?.kvs[0]);
    const revision = succeeded ? header.revision : there[0]?.createRevision;
    const isOurs = (entry: QueueEntry, n: number): boolean =>
      this.#isOurs(entry, there[n]) && there[n]?.createRevision === revision;
    if (revision === undefined || (!succeeded && !entries.every(isOurs))) return false;
    for (const entry of entries) {
      entry.revision = revision;
      if (!succeeded) entry.foundExecuted();
      this.#queueOf(entry).own.add(entry);
    }
    return true;
  }

  /** Some keys belong to another client or were deleted by hand: removes ours, so that a join with other numbers can follow. */
  #undo(entries: readonly QueueEntry[], { ranges }: TxnAnswer): void {
    entries.forEach((entry, n) => {
      const there = ranges[n]?.kvs[0];
      if (there === undefined) return this.#discard(entry);
      if (!this.#isOurs(entry, there)) return this.#queueOf(entry).own.takenByAnother(entry);
      entry.revision = there.createRevision;
      this.#queueOf(entry).leaveInBackground(entry);
    });
  }

  #discard(entry: QueueEntry): void {
    const queue = this.#queueOf(entry);
    queue.own.release(entry);
    queue.forgetIfIdle();
  }

  #queueOf({ name }: QueueEntry): Queue {
    return Queue.of(this.lease, name);
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
