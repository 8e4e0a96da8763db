import { EtcdRefusedError, KindMismatchError } from "../../errors.js";
import type { KeyValue, Range, Txn, TxnAnswer } from "../../etcd/port.js";
import type { RangesAnswer } from "../../etcd/ranges.js";
import { type CallPolicy, retryAfter } from "../../etcd/retry.js";
import { parseEntryValue } from "../../keys.js";
import { entryFound, type LockKind, mayMeet } from "../../kinds.js";
import type { AdoptedEntry } from "../session/cleanup.js";
import type { About, JoinedEntry, QueueEntry } from "./entry.js";
import {
  GRANTED,
  type Granted,
  GRANTED_UNSEEN,
  type JoinResult,
  type LockMode,
  oldestOf,
  type RangeResult,
  UNKNOWN,
  type When,
  whenEmpty,
  writer,
} from "./lock-mode.js";
import type { LeaveBy, LockTable, Queue } from "./queue.js";
import type { SessionEntries } from "./session-entries.js";
import { roomIn } from "./room.js";
import type { Superseding } from "./superseding.js";
import { joinRefused, joinTxn, takeOverTxn, tryTxn } from "./txns.js";

/** The entry that a caller wants to put into each of its queues. */
export interface JoinWanted {
  readonly names: readonly string[];
  readonly mode: LockMode;
  readonly kind: LockKind;
  readonly value?: string | undefined;
  readonly reason?: string | undefined;
  /** When the call was made, if it may join several times. */
  readonly since?: string | undefined;
  readonly about?: About | undefined;
  readonly sticky?: boolean;
  /** How many may wait, with this entry. */
  readonly maxWaiting?: number | undefined;
  readonly superseding?: Superseding | undefined;
  readonly limits: Partial<Pick<CallPolicy, "giveUpMs" | "again" | "what" | "onLeaseGone">>;
  readonly beside?: Beside | undefined;
  /** Called with the oldest entries of the queue if a try was not granted because of others. */
  readonly onTaken?: (oldest: readonly KeyValue[]) => void;
}

/** What the transaction does beside the put of an entry that holds at once: all of it, or nothing. */
export interface Beside {
  /** Adds compares and operations, behind those of `join`. */
  extend(join: Txn, entry: QueueEntry): Txn;
  answered(answer: TxnAnswer): void;
  /** All of it is in doubt, and must not stay. */
  readonly leaveBy: LeaveBy;
}

/** What an answer has shown of a queue. */
export interface ShownQueue {
  /** What it has read last. */
  readonly kvs: readonly KeyValue[];
  /** What it has read before that. */
  readonly before: readonly KeyValue[];
  readonly revision: bigint;
}

/** On which terms an entry joins its queue. */
export interface Admission {
  /** Before the first attempt. Rejects with what the caller gets instead of a place. */
  begins?(): Promise<void>;
  /** An attempt. Its answer shows the queue last, unless it puts the entry. The first one needs an empty queue. */
  txn(entry: QueueEntry): Txn;
  /** The entry was not put. @throws what the caller gets instead of a place. */
  shown(queue: ShownQueue): void;
  /** The entry was put; `queue`: if its attempt has read that. @throws what the caller gets: the entry leaves. */
  put?(queue: ShownQueue, entry: JoinedEntry): void | Promise<void>;
}

/** A queue entry, and the result of its join. */
export interface Joined<Result extends JoinResult = JoinResult> {
  readonly entry: JoinedEntry;
  readonly result: Result;
  /** The answer to the join shows an entry of another kind: this entry must leave. */
  readonly mismatch?: KindMismatchError | undefined;
}

/**
 * A transaction that puts entries: in any case, with or without a read of the queue, or only if all of them hold at once. `lockAll`
 * has up to 30 names, and etcd allows 128 operations in a request: there is no room for reads.
 */
type Step = "join and read" | "join" | When;
const JOIN: readonly Step[] = ["join and read"];
const JOIN_ALL: readonly Step[] = [whenEmpty, "join"];

const NONE: readonly Joined[] = [];

/** What a try that is not granted reads of the queue: the oldest entry, or, for `whenBeside`, both keys of that one. */
const inTheWay = ({ trying }: LockMode, path: string): Range =>
  oldestOf(path, "whenBeside" in trying ? 2 : 1);
/** So many transactions of one try, while the writer changes beside which it may hold. */
const MAX_TRIES = 4;

/** The key of an entry is there already, of another client: the next number is tried. Nobody outside sees this error. */
const KEY_TAKEN = new Error("the key is taken");

function assertKeyTaken(error: unknown): void {
  if (error !== KEY_TAKEN) throw error;
}

/**
 * Puts an entry into the queue of one name, or one into each of several queues: all of them, with one create revision, or none. A
 * lost answer neither loses an entry nor leaves one behind.
 */
export class Joiner {
  constructor(private readonly table: LockTable) {}

  /** An entry that the lease had when it was adopted, or a new one. Rejects if the call would wait for one of another kind. */
  join(queue: Queue, wanted: JoinWanted): Promise<readonly Joined[]> {
    try {
      const { own, name } = queue;
      const mismatch = own.mismatch(wanted.kind, own.joined);
      if (mismatch) throw mismatch;
      const directory = `${queue.path}${wanted.mode.folder}`;
      const adopted = this.table.lease.adopted?.claim(directory, (entry) => {
        this.#assertMeets(name, wanted.kind, entry);
        // One that takes fewer permits than the call wants would be counted wrongly. It leaves after a TTL, as no call claims it.
        return parseEntryValue(entry.value).weighted?.weight === wanted.mode.weight;
      });
      if (!adopted) {
        const admission = wanted.superseding?.admission(queue) ?? roomIn(queue, wanted);
        return admission ? this.joinIf(admission, queue, wanted) : this.#put(wanted, JOIN);
      }
      if (wanted.mode === writer) return this.#takeOver(adopted, queue, wanted);
      return Promise.resolve([{ entry: own.adopt(adopted, wanted), result: UNKNOWN }]);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * The put of a downgrade that the session before has sent may still arrive. It compares the modification revision, which this changes. If it has
   * arrived already, others may read beside: the call joins anew, behind them. If etcd rejects the put, as one that is full does, the next call may
   * take the entry over.
   */
  async #takeOver(adopted: AdoptedEntry, queue: Queue, wanted: JoinWanted): Promise<readonly Joined[]> {
    const entry = queue.own.adopt(adopted, wanted);
    const { lease } = this.table;
    const txn = takeOverTxn(entry, entry.mode.reads(entry, true));
    try {
      const { succeeded, header, ranges } = await lease.services.client.txn(txn, this.#policy(wanted));
      if (succeeded) {
        entry.putAgain(header.revision);
        const found = ranges.filter((range) => range !== undefined);
        return [{ entry, result: entry.mode.positionOf(entry, found) === "first" ? GRANTED : UNKNOWN }];
      }
    } catch (error) {
      const reason = await joinRefused(lease, txn, error);
      if (error instanceof EtcdRefusedError) {
        lease.adopted?.giveBack(adopted);
        queue.lost(entry);
      } else queue.leaveInBackground(entry);
      throw lease.signal.aborted ? lease.signal.reason : reason;
    }
    queue.leaveInBackground(entry);
    return this.join(queue, wanted);
  }

  /** An entry in each of several queues, granted if all queues were empty. */
  joinAll(wanted: JoinWanted): Promise<readonly Joined[]> {
    for (const name of wanted.names) this.table.queue(name).tenures.end();
    return this.#put(wanted, JOIN_ALL);
  }

  /** An entry that holds at once, or undefined if it would have to wait. */
  async tryJoin(queue: Queue, wanted: JoinWanted): Promise<Joined<Granted> | undefined> {
    const { trying } = wanted.mode;
    if ("check" in trying) {
      const [found] = await this.#read([trying.check(queue.path)], wanted);
      for (const kv of found?.kvs ?? []) this.#assertMeets(queue.name, wanted.kind, kv);
      if (found && trying.hasRoom(found)) return this.#joinIfHeld(queue, wanted);
      wanted.onTaken?.(found?.kvs ?? []);
      return undefined;
    }
    let oldest: readonly KeyValue[] = [];
    const onTaken = wanted.onTaken && ((kvs: readonly KeyValue[]): void => void (oldest = kvs));
    const tried = onTaken ? { ...wanted, onTaken } : wanted;
    let when: When | undefined = trying.when;
    for (let n = 0; when && n < MAX_TRIES; n++) {
      const [joined] = await this.#put(tried, [when]);
      if (joined) return { entry: joined.entry, result: GRANTED };
      // The writer may have ended since the last answer: then the queue may be free.
      const again: When | undefined = when === trying.when ? undefined : trying.when;
      when = trying.whenBeside?.(queue.path, oldest) ?? again;
    }
    wanted.onTaken?.(oldest.slice(0, 1));
    return undefined;
  }

  /** Another client may have joined first: the entry is then removed again. */
  async #joinIfHeld(queue: Queue, wanted: JoinWanted): Promise<Joined<Granted> | undefined> {
    const [{ entry, result, mismatch }] = (await this.#put(wanted, JOIN)) as readonly [Joined];
    if (mismatch) {
      queue.leaveInBackground(entry);
      throw mismatch;
    }
    if (result.state === "granted") return { entry, result };
    const held = result.state === "unknown" && (await this.#isFirst(entry, wanted));
    if (held) return { entry, result: GRANTED_UNSEEN };
    queue.leaveInBackground(entry);
    return undefined;
  }

  async #isFirst(entry: JoinedEntry, wanted: JoinWanted): Promise<boolean> {
    try {
      const results = await this.#read(entry.mode.reads(entry, true), wanted);
      return !entry.mismatchIn(results, true) && entry.mode.positionOf(entry, results) === "first";
    } catch (error) {
      this.#queueOf(entry).leaveInBackground(entry);
      throw error;
    }
  }

  /** @throws KindMismatchError if an entry of the name, on any lease, is of another kind. */
  #assertMeets(
    name: string,
    kind: LockKind,
    kv: Pick<KeyValue, "key" | "value"> & { readonly leaseId?: bigint },
  ): void {
    const { leaseId, services } = this.table.lease;
    const found = entryFound(name, { leaseId, ...kv }, services.options.prefix);
    if (found && !(found.name === name && mayMeet(kind, found.kind)))
      throw new KindMismatchError({ name, kind }, found, kv.key.toString());
  }

  async #read(ranges: readonly Range[], wanted: JoinWanted): Promise<readonly RangeResult[]> {
    const answer = await this.table.lease.services.client.ranges(ranges, this.#policy(wanted));
    this.#shown(wanted, ranges, answer);
    return answer.ranges;
  }

  /** Whoever asks, the answer may show that a key is gone which the session keeps. */
  #shown({ names }: JoinWanted, ranges: readonly Range[], { ranges: found, header }: RangesAnswer): void {
    for (const name of names) this.table.queue(name).own.shownBy(ranges, found, header.revision);
  }

  /** `entries`: those that the call puts. */
  #policy({ names, limits }: JoinWanted, entries: readonly QueueEntry[] = []): CallPolicy {
    const what = `join the queue${names.length > 1 ? "s" : ""} of "${names.join('", "')}"`;
    const onUnanswered = (): void => entries.forEach((entry) => entry.attemptUnanswered());
    return { onUnanswered, ...this.table.lease.joinPolicy(what), ...limits };
  }

  /**
   * The entries, put by the first step that could; none if none could, and the last is no join. If a key exists with a value that is
   * not ours, the next numbers are tried. Each promise costs the path to a lock: this is the only suspended function of a join.
   */
  async #put(wanted: JoinWanted, steps: readonly Step[], repeated = false): Promise<readonly Joined[]> {
    const { lease } = this.table;
    const { beside } = wanted;
    const entries = wanted.names.map((name) => this.table.queue(name).own.make(wanted));
    const policy = this.#policy(wanted, entries);
    let found: TxnAnswer["ranges"] = [];
    for (const step of steps) {
      const join = this.#txn(entries, step, wanted.onTaken !== undefined);
      const txn = beside?.extend(join, entries[0] as QueueEntry) ?? join;
      let answer: TxnAnswer;
      try {
        answer = await lease.services.client.txn(txn, policy);
      } catch (error) {
        const reason = await joinRefused(lease, txn, error);
        for (const entry of entries) this.#giveBack(entry, beside);
        throw lease.signal.aborted ? lease.signal.reason : reason;
      }
      beside?.answered(answer);
      const revision = answer.succeeded ? answer.header.revision : executedAt(entries, answer);
      if (revision !== undefined)
        return entries.map((entry) => {
          const { own } = this.#queueOf(entry);
          if (!answer.succeeded) entry.foundExecuted();
          const joined = entry.confirmed(revision);
          own.add(joined);
          return typeof step === "string"
            ? joinedBy(joined, own, answer)
            : { entry: joined, result: GRANTED };
        });
      found = answer.ranges;
      const oldest = found.at(-1);
      if (typeof step !== "string" && wanted.onTaken && oldest)
        this.#shown(wanted, [inTheWay(wanted.mode, entries[0]!.path)], {
          ranges: [oldest],
          header: answer.header,
        });
    }
    this.#undo(entries, found);
    if (typeof steps.at(-1) !== "string") {
      wanted.onTaken?.(found.at(-1)?.kvs ?? []);
      return NONE;
    }
    if (repeated) throw KEY_TAKEN;
    const retries = { clock: lease.services.clock, signal: lease.signal, failed: assertKeyTaken };
    return retryAfter(KEY_TAKEN, () => this.#put(wanted, steps, true), retries);
  }

  /** Each answer shows the queue, and the next attempt joins it as it was shown: it fails only if another client has changed it. */
  async joinIf(admission: Admission, queue: Queue, wanted: JoinWanted): Promise<readonly Joined[]> {
    const { lease } = this.table;
    const { own } = queue;
    await admission.begins?.();
    for (;;) {
      const entry = own.make(wanted);
      const txn = admission.txn(entry);
      let answer: TxnAnswer;
      try {
        answer = await lease.services.client.txn(txn, this.#policy(wanted, [entry]));
      } catch (error) {
        const reason = await joinRefused(lease, txn, error);
        this.#giveBack(entry, undefined);
        throw lease.signal.aborted ? lease.signal.reason : reason;
      }
      const { succeeded, header, ranges } = answer;
      const revision = succeeded ? header.revision : executedAt([entry], answer);
      const [before, last] = [ranges.at(-2), ranges.at(-1)];
      const shown = { kvs: last?.kvs ?? [], before: before?.kvs ?? [], revision: header.revision };
      if (revision === undefined) {
        this.#undo([entry], ranges);
        admission.shown(shown);
        continue;
      }
      const joined = entry.confirmed(revision);
      own.add(joined);
      try {
        const settled = admission.put?.(shown, joined);
        if (!succeeded) entry.foundExecuted();
        if (settled) await settled;
      } catch (error) {
        queue.leaveInBackground(joined);
        throw error;
      }
      return [joinedBy(joined, own, answer)];
    }
  }

  /** `showsOldest`: who is in the way of a try. */
  #txn(entries: readonly QueueEntry[], step: Step, showsOldest: boolean): Txn {
    if (step === "join") return joinTxn(entries, []);
    if (step !== "join and read")
      return tryTxn(entries, step, showsOldest ? entries.map(({ mode, path }) => inTheWay(mode, path)) : []);
    const reads: Range[] = [];
    for (const entry of entries)
      if (!entry.mode.surelyFollows(this.#queueOf(entry).own.staying))
        reads.push(...entry.mode.readsToJoin(entry));
    return joinTxn(entries, reads);
  }

  /** Its join has failed. If it is in doubt, the put may have been applied, or may still be: it is deleted. */
  #giveBack(entry: QueueEntry, beside: Beside | undefined): void {
    if (entry.inDoubt) this.#queueOf(entry).leaveInBackground(entry, beside?.leaveBy);
    else this.#discard(entry);
  }

  /** Some keys are another client's, or missing: removes ours, so that other entries can be put. */
  #undo(entries: readonly QueueEntry[], found: TxnAnswer["ranges"]): void {
    entries.forEach((entry, n) => {
      const kv = found[n]?.kvs[0];
      // The delay key of an earlier entry may still be there.
      const delay = entry.delayKey && found[entries.length + n]?.kvs[0];
      if (!kv && !delay) return this.#discard(entry);
      const queue = this.#queueOf(entry);
      if (kv && isOurs(entry, kv)) return queue.leaveInBackground(entry.confirmed(kv.createRevision));
      queue.own.takenByAnother(entry);
      queue.forgetIfIdle();
    });
  }

  #discard(entry: QueueEntry): void {
    const queue = this.#queueOf(entry);
    queue.own.release(entry);
    queue.forgetIfIdle();
  }

  /** Looked up at each step: a queue of several names may be idle meanwhile, and be forgotten. */
  #queueOf({ name }: QueueEntry): Queue {
    return this.table.queue(name);
  }
}

const isOurs = (entry: QueueEntry, kv: KeyValue): boolean =>
  kv.value === entry.value && kv.leaseId === entry.lease.leaseId;

/**
 * The same request may have been executed earlier, sent by us or repeated by a proxy: its revision counts, and that
 * attempt is not in doubt. The header's revision would be a fence above those of entries that joined in between, and would not
 * be the place in the queue. Candidates may have equal values, but no two entries of a session have the same key at a time.
 */
function executedAt(entries: readonly QueueEntry[], { ranges }: TxnAnswer): bigint | undefined {
  const revision = ranges[0]?.kvs[0]?.createRevision;
  const executed = entries.every((entry, n) => {
    const kv = ranges[n]?.kvs[0];
    return kv !== undefined && isOurs(entry, kv) && kv.createRevision === revision;
  });
  return executed ? revision : undefined;
}

/** What the answer to a join shows: of the entries before it, and of ours that it should contain. */
function joinedBy(entry: JoinedEntry, own: SessionEntries, { succeeded, ranges }: TxnAnswer): Joined {
  const reads = entry.mode.readsToJoin(entry);
  const found = ranges.filter((range) => range !== undefined).slice(0, reads.length);
  if (!succeeded || found.length === 0) return { entry, result: UNKNOWN };
  if (own.count > 1) own.shownBy(reads, found, entry.revision);
  const result = entry.mode.joined(entry, found);
  if (result.state === "waiting") entry.foundBefore(result.predecessor.revision);
  return { entry, result, mismatch: entry.mismatchIn(found, true) };
}
