import type { CallPolicy } from "../etcd/retry.js";
import { Backoff } from "../etcd/backoff.js";
import type { Range, Txn, TxnAnswer } from "../etcd/port.js";
import {
  GRANTED,
  GRANTED_UNSEEN,
  UNKNOWN,
  type Granted,
  type JoinResult,
  type LockMode,
  type RangeResult,
} from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { SessionEntries } from "./session-entries.js";
import type { JoinedEntry, QueueEntry } from "./entry.js";
import { pause } from "../async/clock.js";
import { joinBehindTxn, joinRefused, joinTxn, tryTxn } from "./txns.js";

type Limits = Pick<CallPolicy, "giveUpMs" | "again">;

/** A queue entry, and the result of its join. */
export interface Joined<Result extends JoinResult = JoinResult> {
  readonly entry: JoinedEntry;
  readonly result: Result;
}

/** A queue, as far as a join uses it. */
interface JoinedQueue {
  readonly lease: Lease;
  readonly name: string;
  readonly own: SessionEntries;
  /** Removes an entry that is not wanted, or that may exist although its join failed. */
  leaveInBackground(entry: QueueEntry): void;
}

/** Puts entries into the queue of one name. A lost answer neither loses an entry nor leaves one behind. */
export class Joiner {
  constructor(private readonly queue: JoinedQueue) {}

  /** An adopted entry, or a new one. If the key exists with a value that is not ours, the next number is tried. */
  async join(mode: LockMode, value: string | undefined, limits: Limits): Promise<Joined> {
    const adopted = this.queue.lease.adopted?.claim(`${this.queue.name}${mode.folder}`);
    if (adopted) return { entry: this.queue.own.adopt(adopted, mode), result: UNKNOWN };
    return this.#joinAnew(mode, value, limits);
  }

  async #joinAnew(mode: LockMode, value: string | undefined, limits: Limits): Promise<Joined> {
    const { clock } = this.queue.lease.services;
    let backoff: Backoff | undefined;
    for (;;) {
      const entry = this.queue.own.make(mode, value);
      const behindOurs = mode.surelyFollows(this.queue.own.joined);
      const txn = behindOurs ? joinBehindTxn(entry) : joinTxn(entry);
      const answer = await this.#put(entry, txn, limits);
      const joined = this.#confirm(entry, answer);
      if (joined) return { entry: joined, result: behindOurs ? UNKNOWN : joinResultOf(joined, answer) };
      this.queue.own.takenByAnother(entry);
      backoff ??= new Backoff(clock);
      await pause(clock, backoff.nextMs(), this.queue.lease.signal);
    }
  }

  /** An entry that holds at once, or undefined if it would have to wait. */
  async tryJoin(
    mode: LockMode,
    value: string | undefined,
    limits: Limits,
  ): Promise<Joined<Granted> | undefined> {
    const { trying } = mode;
    if ("look" in trying) {
      const [found] = await this.#read([trying.look(this.queue.name)], limits);
      return found && trying.hasRoom(found) ? this.#joinIfHeld(mode, value, limits) : undefined;
    }
    const entry = this.queue.own.make(mode, value);
    const answer = await this.#put(entry, tryTxn(entry, trying.when(entry)), limits);
    const joined = this.#confirm(entry, answer);
    if (joined) return { entry: joined, result: GRANTED };
    this.queue.own.release(entry);
    return undefined;
  }

  /** Another client may have joined first: the entry is then removed again. */
  async #joinIfHeld(
    mode: LockMode,
    value: string | undefined,
    limits: Limits,
  ): Promise<Joined<Granted> | undefined> {
    const { entry, result } = await this.#joinAnew(mode, value, limits);
    if (result.state === "granted") return { entry, result };
    const held = result.state === "unknown" && (await this.#isFirst(entry, limits));
    if (held) return { entry, result: GRANTED_UNSEEN };
    this.queue.leaveInBackground(entry);
    return undefined;
  }

  async #isFirst(entry: JoinedEntry, limits: Limits): Promise<boolean> {
    try {
      const results = await this.#read(entry.mode.reads(entry, true), limits);
      return entry.mode.positionOf(entry, results) === "first";
    } catch (error) {
      this.queue.leaveInBackground(entry);
      throw error;
    }
  }

  async #read(ranges: readonly Range[], limits: Limits): Promise<readonly RangeResult[]> {
    const policy = { ...this.#policy(), ...limits };
    return (await this.queue.lease.services.client.ranges(ranges, policy)).ranges;
  }

  async #put(entry: QueueEntry, txn: Txn, limits: Limits): Promise<TxnAnswer> {
    const policy = { onUnanswered: () => entry.attemptUnanswered(), ...this.#policy(), ...limits };
    try {
      return await this.queue.lease.services.client.txn(txn, policy);
    } catch (error) {
      await joinRefused(this.queue.lease, txn, error);
      // The put may have been applied, or may still be.
      if (entry.inDoubt) this.queue.leaveInBackground(entry);
      else this.queue.own.release(entry);
      this.queue.lease.signal.throwIfAborted();
      throw error;
    }
  }

  #policy(): CallPolicy {
    return this.queue.lease.policy(`join the queue of "${this.queue.name}"`);
  }

  /** The entry with its create revision, or undefined if it is not in the queue. */
  #confirm(entry: QueueEntry, answer: TxnAnswer): JoinedEntry | undefined {
    const revision = answer.succeeded ? answer.header.revision : this.#executedAt(entry, answer);
    if (revision === undefined) return undefined;
    if (!answer.succeeded) entry.foundExecuted();
    const joined = entry.confirmed(revision);
    this.queue.own.add(joined);
    return joined;
  }

  /**
   * The same request may have been executed earlier, sent by us or repeated by a proxy: its revision counts, and that
   * attempt is not in doubt. Candidates may have equal values, but no two entries of a session have the same key at a time.
   */
  #executedAt(entry: QueueEntry, answer: TxnAnswer): bigint | undefined {
    const own = answer.ranges[0]?.kvs[0];
    const isOurs = own?.value === entry.value && own.leaseId === this.queue.lease.leaseId;
    return isOurs ? own.createRevision : undefined;
  }
}

/** What the answer to a join shows about the entries before it. */
function joinResultOf(entry: JoinedEntry, { succeeded, ranges }: TxnAnswer): JoinResult {
  const found = ranges.filter((range) => range !== undefined);
  const result = succeeded && found.length > 0 ? entry.mode.joined(entry, found) : UNKNOWN;
  if (result.state === "waiting") entry.foundBefore(result.predecessor.revision);
  return result;
}
