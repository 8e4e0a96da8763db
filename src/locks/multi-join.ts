import type { CallPolicy } from "../etcd/retry.js";
import { backoff } from "../etcd/backoff.js";
import type { KeyValue, Txn, TxnAnswer } from "../etcd/port.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Lease } from "../session/lease.js";
import { own, put, type Place } from "../queue/entry.js";
import { Queue } from "../queue/queue.js";
import { joinRefused } from "../queue/refused-join.js";
import { pause } from "../async/clock.js";

/** Puts a place into each of several queues in one transaction: all of them, with one create revision, or none. */
export class MultiJoiner {
  constructor(
    private readonly lease: Lease,
    private readonly names: readonly string[],
  ) {}

  /** `alone`: nobody else was in any of the queues, so all of them hold, after one request. */
  async join(again: () => boolean): Promise<{ readonly places: readonly Place[]; readonly alone: boolean }> {
    for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
      const places = this.names.map((name) => Queue.of(this.lease, name).own.make());
      const tried = await this.#put(places, tryTxn(places), again);
      if (this.#confirm(places, tried)) return { places, alone: tried.succeeded };
      const joined = await this.#put(places, joinTxn(places), again);
      if (this.#confirm(places, joined)) return { places, alone: false };
      this.#undo(places, joined);
      await pause(this.lease.connection.clock, wait.duration, this.lease.signal);
    }
  }

  async #put(places: readonly Place[], txn: Txn, again: () => boolean): Promise<TxnAnswer> {
    const policy: CallPolicy = {
      ...this.lease.policy(`join the queues of ${this.names.map((name) => `"${name}"`).join(", ")}`),
      again,
      onUnanswered: () => places.forEach((place) => void place.unanswered++),
    };
    try {
      return await this.lease.connection.members.txn(txn, policy);
    } catch (error) {
      await joinRefused(this.lease, txn, error);
      for (const place of places) {
        if (place.unanswered === 0) this.#discard(place);
        // It may have been applied, or will be.
        else this.#queueOf(place).leaveQuietly(place);
      }
      this.lease.signal.throwIfAborted();
      throw error;
    }
  }

  /** Are all of them in their queues, by one transaction of ours? Then its revision is theirs. */
  #confirm(places: readonly Place[], { succeeded, header, ranges }: TxnAnswer): boolean {
    const there = ranges.map((range) => range?.kvs[0]);
    const revision = succeeded ? header.revision : there[0]?.createRevision;
    const isOurs = (place: Place, n: number): boolean =>
      this.#isOurs(place, there[n]) && there[n]?.createRevision === revision;
    if (revision === undefined || (!succeeded && !places.every(isOurs))) return false;
    for (const place of places) {
      place.revision = revision;
      if (!succeeded) place.foundExecuted();
      this.#queueOf(place).own.add(place);
    }
    return true;
  }

  /** Some of the keys are somebody else's, or were deleted by hand: what is ours goes, and other numbers are tried. */
  #undo(places: readonly Place[], { ranges }: TxnAnswer): void {
    places.forEach((place, n) => {
      const there = ranges[n]?.kvs[0];
      if (there === undefined) return this.#discard(place);
      if (!this.#isOurs(place, there)) return this.#queueOf(place).own.stranger(place);
      place.revision = there.createRevision;
      this.#queueOf(place).leaveQuietly(place);
    });
  }

  #discard(place: Place): void {
    const queue = this.#queueOf(place);
    queue.own.release(place);
    queue.rest();
  }

  #queueOf({ name }: Place): Queue {
    return Queue.of(this.lease, name);
  }

  #isOurs(place: Place, there: KeyValue | undefined): boolean {
    return there?.value === place.value && there.leaseId === this.lease.leaseId;
  }
}

const common = (places: readonly Place[]) => ({
  roots: places.map(({ name }) => name),
  then: places.map(put),
  otherwise: places.map(own),
});

/** Only if nobody is in any of the queues. */
const tryTxn = (places: readonly Place[]): Txn => ({
  ...common(places),
  when: places.map(({ name }) => ({ kind: "nothing in", ...queueRange(name) })),
});

const joinTxn = (places: readonly Place[]): Txn => ({
  ...common(places),
  when: places.map(({ key }) => ({ kind: "created at", key, revision: 0n })),
});
