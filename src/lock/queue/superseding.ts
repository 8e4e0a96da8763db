// The newest caller wins. An entry of a call with `supersede` says so in its value, and the next such call deletes those of its kind that
// wait, in the transaction that puts its own:
//
//   41  holds               guard: it is still there, so nobody behind it has begun to hold
//   44  waits               a plain waiter stays, and is before the newest
//   47  waits, supersede    deleted
//   50  waits               stays
//   51                      the new entry. Nothing was created since the queue was read, so it is the newest
//
// The session whose key was deleted asks etcd why: the queue at the revision of the deletion has a newer entry, or an administrator has deleted
// the key, and the call joins anew. It does not get newer by that.
// An attempt without an answer may have joined, too, and been overtaken by a call that has left since: then nothing in the queue shows it. So a call
// that has joined after such an attempt asks etcd's history for newer ones (`PutsBefore`), before it waits or holds. So does one that joins
// anew: a newer one may have come and left since its key was deleted, or, with another session, since nothing was told to the one before.
import { SupersededError } from "../../errors.js";
import type { Compare, KeyValue, Txn } from "../../etcd/port.js";
import { parseEntryKey, parseEntryValue } from "../../keys.js";
import { revisionIsGone } from "./contenders.js";
import type { JoinedEntry, QueueEntry } from "./entry.js";
import type { Admission } from "./join.js";
import type { Lease } from "../session/lease.js";
import { queueRange, whenEmpty } from "./lock-mode.js";
import { PutsBefore } from "./puts-before.js";
import type { Queue } from "./queue.js";
import { cut } from "./seen-entry.js";
import { newestIn, supersedingTxn } from "./txns.js";

/** In one transaction, of which etcd takes 128 operations. More wait only by misuse: each newer one deletes them all. */
const MAX_OVERTAKEN = 60;

let calls = 0;
const NOBODY: readonly KeyValue[] = [];

interface InDoubt {
  readonly since: bigint;
  readonly values: readonly string[];
}

/** One call with `supersede`, which may join several times. */
export class Superseding {
  readonly order = calls++;
  /** Create revisions of its entries: the first one is its age. */
  readonly #own: bigint[] = [];
  /** That of its last entry. */
  #lease: Lease | undefined;
  /** Its key was deleted, at a revision that may be unknown. */
  #lost: { readonly at: bigint | undefined } | undefined;
  /** The last attempt, and the revision at which the queue was shown to it. */
  #last: { readonly entry: QueueEntry; readonly shownAt: bigint | undefined } | undefined;
  /** A newer call may have come after this revision, and left. `values`: what attempts without an answer may have put since. */
  #inDoubt: InDoubt | undefined;

  joined({ revision, lease }: JoinedEntry): void {
    this.#own.push(revision);
    this.#lease = lease;
  }

  lostKey(at: bigint | undefined): void {
    this.#lost = { at };
  }

  admission(queue: Queue): Admission {
    const { path } = queue;
    let overtaken = NOBODY;
    let asShown: readonly Compare[] | undefined;
    let shownAt: bigint | undefined;
    return {
      begins: () => this.#assertNewest(queue),
      txn: (entry: QueueEntry): Txn => {
        this.#last = { entry, shownAt };
        return supersedingTxn(entry, asShown ? () => asShown! : whenEmpty, overtaken);
      },
      shown: ({ kvs, revision }) => {
        this.#attemptEnded();
        shownAt = revision;
        const calls = this.#assertNone(queue, kvs);
        // The holder, and its delay key. In a longer queue than the answer, an entry before all of these that may be deleted.
        const guard = kvs.at(-1);
        overtaken = calls.filter((kv) => kv.createRevision !== guard?.createRevision).slice(0, MAX_OVERTAKEN);
        asShown = [{ kind: "nothing since", ...queueRange(path), revision }];
        if (guard && overtaken.length > 0)
          asShown = [...asShown, { kind: "created at", key: guard.key, revision: guard.createRevision }];
      },
      put: (_, entry) => {
        this.#attemptEnded();
        return this.#inDoubt && this.#assertNoneSince(this.#inDoubt, queue, entry);
      },
    };
  }

  /** Without an answer it may have joined, and been overtaken since. On an empty queue it holds, and is overtaken by nobody. */
  #attemptEnded(): void {
    const { entry, shownAt } = this.#last ?? {};
    this.#last = undefined;
    if (!entry?.inDoubt || shownAt === undefined) return;
    const { since = shownAt, values = [] } = this.#inDoubt ?? {};
    this.#inDoubt = { since, values: [...values, entry.value] };
    if (this.#own.length === 0) this.#own.push(shownAt);
  }

  /**
   * @throws SupersededError if a newer one was put between this revision and that of `entry`. What etcd has compacted counts as one after an attempt
   * without an answer, and not after the end of a session: a call that has waited for long could never join again.
   */
  async #assertNoneSince({ since, values }: InDoubt, queue: Queue, entry: JoinedEntry): Promise<void> {
    const puts = await new PutsBefore(entry, since).found;
    if (!puts && values.length > 0) throw new SupersededError(queue.name, undefined);
    this.#assertNone(queue, puts ?? NOBODY);
    this.#inDoubt = undefined;
  }

  /** Why its key was deleted, if it was. @throws SupersededError */
  async #assertNewest(queue: Queue): Promise<void> {
    const { lease, name, path } = queue;
    const { client } = lease.services;
    // Of another session.
    this.#attemptEnded();
    const last = this.#own.at(-1);
    if (last !== undefined && this.#lease !== lease) this.#inDoubt ??= { since: last, values: [] };
    if (!this.#lost) return;
    const { at } = this.#lost;
    this.#lost = undefined;
    const policy = lease.policy(`join the queue of "${name}"`);
    if (at !== undefined)
      try {
        const then = await client.range({ revision: at, ...newestIn(path) }, policy);
        this.#assertNone(queue, then.kvs);
        this.#inDoubt ??= { since: at, values: [] };
        return;
      } catch (error) {
        // etcd has compacted that revision.
        if (!revisionIsGone(error)) throw error;
      }
    const now = await client.range(newestIn(path), policy);
    this.#assertNone(queue, now.kvs);
    // The key goes with its lease, too. Otherwise a newer one may have come, held and left: an older one must not follow it.
    await lease.renewNow();
    throw new SupersededError(name, undefined);
  }

  /** The entries of such calls. @throws SupersededError if one of them is newer. */
  #assertNone({ name, path }: Queue, kvs: readonly KeyValue[]): readonly KeyValue[] {
    const calls = kvs.filter((kv) => supersedes(path, kv));
    const own = this.#own;
    const isOwn = ({ createRevision, value }: KeyValue): boolean =>
      own.includes(createRevision) || this.#inDoubt?.values.includes(value) === true;
    const newest = calls.find((kv) => own[0] !== undefined && kv.createRevision > own[0] && !isOwn(kv));
    if (newest) throw new SupersededError(name, cut(parseEntryValue(newest.value).owner ?? ""));
    return calls;
  }
}

/** Directly under the name, where only locks and candidates are. A key of a name below is none of ours. */
function supersedes(path: string, { key, value, leaseId }: KeyValue): boolean {
  if (leaseId === 0n || parseEntryKey(key.toString(), leaseId)?.name !== path) return false;
  const { owner, since, id, permits, supersede = false } = parseEntryValue(value);
  return supersede && owner !== undefined && since !== undefined && id !== undefined && permits === undefined;
}
