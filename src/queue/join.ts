import { KindMismatchError } from "../errors.js";
import type { KeyValue, Range, Txn, TxnAnswer } from "../etcd/port.js";
import { type CallPolicy, retryAfter } from "../etcd/retry.js";
import { entryFound, type LockKind, mayMeet } from "../kinds.js";
import type { JoinedEntry, QueueEntry } from "./entry.js";
import {
  GRANTED,
  type Granted,
  GRANTED_UNSEEN,
  type JoinResult,
  type LockMode,
  type RangeResult,
  UNKNOWN,
} from "./lock-mode.js";
import type { Queue } from "./queue.js";
import { joinBehindTxn, joinRefused, joinTxn, tryTxn } from "./txns.js";

/** The entry that a caller wants to put. */
interface JoinWanted {
  readonly mode: LockMode;
  readonly kind: LockKind;
  readonly value?: string | undefined;
}

type Limits = Pick<CallPolicy, "giveUpMs" | "again">;

/** A queue entry, and the result of its join. */
export interface Joined<Result extends JoinResult = JoinResult> {
  readonly entry: JoinedEntry;
  readonly result: Result;
  /** The answer to the join shows an entry of another kind: this entry must leave. */
  readonly mismatch?: KindMismatchError | undefined;
}

/** The key of an entry is there already, of another client: the next number is tried. Nobody outside sees this error. */
export const KEY_TAKEN = { error: new Error("the key is taken") };

export function assertKeyTaken(error: unknown): void {
  if (error !== KEY_TAKEN.error) throw error;
}

/** Puts entries into the queue of one name. A lost answer neither loses an entry nor leaves one behind. */
export class Joiner {
  constructor(private readonly queue: Queue) {}

  /** An entry that the lease had when it was adopted, or a new one. Rejects if the call would wait for one of another kind. */
  join(wanted: JoinWanted, limits: Limits): Promise<Joined> {
    try {
      this.queue.own.assertMeets(wanted.kind);
      const adopted = this.#adopted(wanted);
      return adopted ? Promise.resolve(adopted) : this.#joinAnew(wanted, limits);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #adopted(wanted: JoinWanted): Joined | undefined {
    const directory = `${this.queue.path}${wanted.mode.folder}`;
    const adopted = this.queue.lease.adopted?.claim(directory, (entry) => this.#assertMeets(wanted, entry));
    return adopted && { entry: this.queue.own.adopt(adopted, wanted), result: UNKNOWN };
  }

  /** If the key exists with a value that is not ours, the next number is tried. */
  async #joinAnew(wanted: JoinWanted, limits: Limits, repeated = false): Promise<Joined> {
    const { mode } = wanted;
    const entry = this.queue.own.make(wanted);
    const behindOurs = mode.surelyFollows(this.queue.own.joined);
    const txn = behindOurs ? joinBehindTxn(entry) : joinTxn(entry);
    const answer = await this.#put(entry, txn, limits);
    const joined = this.#confirm(entry, answer);
    if (joined) return behindOurs ? { entry: joined, result: UNKNOWN } : joinedBy(joined, answer);
    this.queue.own.takenByAnother(entry);
    if (repeated) throw KEY_TAKEN.error;
    const { services, signal } = this.queue.lease;
    const retries = { clock: services.clock, signal, failed: assertKeyTaken };
    return retryAfter(KEY_TAKEN.error, () => this.#joinAnew(wanted, limits, true), retries);
  }

  /** An entry that holds at once, or undefined if it would have to wait. */
  async tryJoin(wanted: JoinWanted, limits: Limits): Promise<Joined<Granted> | undefined> {
    const { trying } = wanted.mode;
    if ("check" in trying) {
      const [found] = await this.#read([trying.check(this.queue.path)], limits);
      for (const kv of found?.kvs ?? []) this.#assertMeets(wanted, kv);
      return found && trying.hasRoom(found) ? this.#joinIfHeld(wanted, limits) : undefined;
    }
    const entry = this.queue.own.make(wanted);
    const answer = await this.#put(entry, tryTxn(entry, trying.when(entry)), limits);
    const joined = this.#confirm(entry, answer);
    if (joined) return { entry: joined, result: GRANTED };
    this.queue.own.release(entry);
    return undefined;
  }

  /** Another client may have joined first: the entry is then removed again. */
  async #joinIfHeld(wanted: JoinWanted, limits: Limits): Promise<Joined<Granted> | undefined> {
    const { entry, result, mismatch } = await this.#joinAnew(wanted, limits);
    if (mismatch) {
      this.queue.leaveInBackground(entry);
      throw mismatch;
    }
    if (result.state === "granted") return { entry, result };
    const held = result.state === "unknown" && (await this.#isFirst(entry, limits));
    if (held) return { entry, result: GRANTED_UNSEEN };
    this.queue.leaveInBackground(entry);
    return undefined;
  }

  async #isFirst(entry: JoinedEntry, limits: Limits): Promise<boolean> {
    try {
      const results = await this.#read(entry.mode.reads(entry, true), limits);
      return !entry.mismatchIn(results, true) && entry.mode.positionOf(entry, results) === "first";
    } catch (error) {
      this.queue.leaveInBackground(entry);
      throw error;
    }
  }

  /** @throws KindMismatchError if an entry of the name, on any lease, is of another kind. */
  #assertMeets(
    { kind }: JoinWanted,
    kv: Pick<KeyValue, "key" | "value"> & { readonly leaseId?: bigint },
  ): void {
    const { name } = this.queue;
    const { leaseId, services } = this.queue.lease;
    const found = entryFound(name, { leaseId, ...kv }, services.options.prefix);
    if (found && !(found.name === name && mayMeet(kind, found.kind)))
      throw new KindMismatchError({ name, kind }, found, kv.key.toString());
  }

  async #read(ranges: readonly Range[], limits: Limits): Promise<readonly RangeResult[]> {
    const policy = { ...this.#policy(), ...limits };
    return (await this.queue.lease.services.client.ranges(ranges, policy)).ranges;
  }

  #put(entry: QueueEntry, txn: Txn, limits: Limits): Promise<TxnAnswer> {
    const policy = { onUnanswered: () => entry.attemptUnanswered(), ...this.#policy(), ...limits };
    return this.queue.lease.services.client.txn(txn, policy).catch(async (error: unknown) => {
      await joinRefused(this.queue.lease, txn, error);
      // The put may have been applied, or may still be.
      if (entry.inDoubt) this.queue.leaveInBackground(entry);
      else this.queue.own.release(entry);
      this.queue.lease.signal.throwIfAborted();
      throw error;
    });
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
   * attempt is not in doubt. The header's revision would be a fence above those of entries that joined in between, and would not
   * be the place in the queue. Candidates may have equal values, but no two entries of a session have the same key at a time.
   */
  #executedAt(entry: QueueEntry, answer: TxnAnswer): bigint | undefined {
    const own = answer.ranges[0]?.kvs[0];
    const isOurs = own?.value === entry.value && own.leaseId === this.queue.lease.leaseId;
    return isOurs ? own.createRevision : undefined;
  }
}

/** What the answer to a join shows about the entries before it. */
function joinedBy(entry: JoinedEntry, { succeeded, ranges }: TxnAnswer): Joined {
  const found = ranges.filter((range) => range !== undefined);
  if (!succeeded || found.length === 0) return { entry, result: UNKNOWN };
  const result = entry.mode.joined(entry, found);
  if (result.state === "waiting") entry.foundBefore(result.predecessor.revision);
  return { entry, result, mismatch: entry.mismatchIn(found, true) };
}
