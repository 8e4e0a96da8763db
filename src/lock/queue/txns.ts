import { EtcdRefusedError } from "../../errors.js";
import {
  type Compare,
  type KeyValue,
  LeaseNotFoundError,
  type Operation,
  type Range,
  type Txn,
} from "../../etcd/port.js";
import { deletion } from "../session/cleanup.js";
import type { DelayLease } from "../session/delay-lease.js";
import type { Lease } from "../session/lease.js";
import type { JoinedEntry, QueueEntry } from "./entry.js";
import { type LockMode, oldestOf, queueRange, type When } from "./lock-mode.js";
import { everyEntry } from "./priority-mode.js";

const put = ({ key, lease }: QueueEntry, value: string): Operation => ({
  kind: "put",
  key,
  value,
  leaseId: lease.leaseId,
});

/** The key of an entry, its delay key, and what it says of itself. */
function puts(entry: QueueEntry, value: string): readonly Operation[] {
  const { delayKey: key, about, lease } = entry;
  const all = [put(entry, value)];
  if (key !== undefined && lease.delay !== undefined)
    all.push({ kind: "put", key, value, leaseId: lease.delay.leaseId });
  if (about) all.push({ kind: "put", ...about, leaseId: lease.leaseId });
  return all;
}

const own = ({ key }: QueueEntry): Operation => ({ kind: "range", key });
const rangeOperations = (ranges: readonly Range[]): Operation[] =>
  ranges.map((range) => ({ kind: "range", ...range }));

/** A thousand may wait. The values of permits say how many hold, and there may be a thousand of those, too. */
const MOST = 2 * 1000;
/** Of keys, with a delay key for each entry. */
const MOST_KEYS = 10_000;

/** The whole queue last. Without permits, only the values of the oldest entry and its delay key matter: it may be a writer that has become a reader. */
function wholeQueue(path: string, { permits }: LockMode): readonly Range[] {
  const oldestFirst = { ...queueRange(path), order: "oldest first" } as const;
  if (permits !== undefined) return [{ ...oldestFirst, limit: MOST }];
  return [oldestOf(path, 2), { ...oldestFirst, keysOnly: true, limit: MOST_KEYS }];
}

/** With the values, which show who may be overtaken. */
export const newestIn = (path: string): Range => ({
  ...queueRange(path),
  order: "newest first",
  limit: MOST,
});

const delayKeys = (entries: readonly QueueEntry[]): readonly string[] =>
  entries.flatMap(({ delayKey }) => delayKey ?? []);

/** Puts the keys, all of them or none, unless one of them exists. Reads `ranges` beside. */
export const joinTxn = (entries: readonly QueueEntry[], ranges: readonly Range[]): Txn => ({
  queues: entries.map(({ path }) => path),
  compare: [
    ...entries.map(({ key }) => ({ kind: "created at", key, revision: 0n }) as const),
    ...delayKeys(entries).map((key) => ({ kind: "created at", key, revision: 0n }) as const),
  ],
  success: [...entries.flatMap((entry) => puts(entry, entry.value)), ...rangeOperations(ranges)],
  failure: [...entries.map(own), ...delayKeys(entries).map((key) => ({ kind: "range", key }) as const)],
});

/** Puts the keys only if all of them hold at once. Otherwise it writes nothing, no watcher is notified, and it reads `ranges` last. */
export function tryTxn(entries: readonly QueueEntry[], when: When, ranges: readonly Range[] = []): Txn {
  const join = joinTxn(entries, []);
  return {
    ...join,
    compare: entries.flatMap(when),
    failure: [...join.failure, ...rangeOperations(ranges)],
  };
}

/** Joins if `when` holds, too. Otherwise it writes nothing, and reads `ranges` last. */
function joinTxnIf(entry: QueueEntry, when: When, ranges: readonly Range[]): Txn {
  const join = joinTxn([entry], entry.mode.readsToJoin(entry));
  const compare = [...join.compare, ...when(entry)];
  return { ...join, compare, failure: [...join.failure, ...rangeOperations(ranges)] };
}

/** Joins if `when` holds, too. Otherwise it writes nothing, and reads the whole queue last. */
export const boundedTxn = (entry: QueueEntry, when: When): Txn =>
  joinTxnIf(entry, when, wholeQueue(entry.path, entry.mode));

/** Joins in any case, and reads the whole queue last, in any case. */
export function countedTxn(entry: QueueEntry): Txn {
  const { success, ...join } = boundedTxn(entry, () => []);
  return { ...join, success: [...success, ...rangeOperations(wholeQueue(entry.path, entry.mode))] };
}

/** Deletes these keys and joins, if `when` holds. Otherwise it writes nothing, and reads the queue last, the newest first. */
export function supersedingTxn(entry: QueueEntry, when: When, overtaken: readonly KeyValue[]): Txn {
  const { success, ...join } = joinTxnIf(entry, when, [newestIn(entry.path)]);
  // One of ours that has left since has freed its number, and etcd rejects a transaction that names a key twice.
  const others = overtaken.filter(({ key }) => ![entry.key, entry.delayKey].includes(key.toString()));
  const deletes = others.map(({ key }) => ({ kind: "delete", key }) as const);
  return { ...join, success: [...deletes, ...success] };
}

/** Puts the key of a hold in the place of the one that has waited for it, if `when` holds, too. Otherwise it writes nothing, and reads the whole queue last. */
export function claimTxn(hold: QueueEntry, place: JoinedEntry | undefined, when: readonly Compare[]): Txn {
  const { queues, compare, success, failure } = joinTxn([hold], []);
  const deletes: readonly Operation[] = place ? [{ kind: "delete", key: place.key }] : [];
  return {
    queues,
    compare: [...compare, ...when],
    success: [...deletes, ...success],
    failure: [...failure, { kind: "range", ...everyEntry(hold.path) }],
  };
}

/** Puts a place among those that wait, and reads the whole queue last, in any case. */
export function placeTxn(place: QueueEntry): Txn {
  const read = everyEntry(place.path);
  const { failure, ...join } = joinTxn([place], [read]);
  return { ...join, failure: [...failure, { kind: "range", ...read }] };
}

/** Compares that the entry is there, and reads its key if it is not: the callers add what they do under the hold. */
export const heldTxn = (entry: JoinedEntry): Txn => ({
  queues: [entry.path],
  compare: [{ kind: "created at", key: entry.key, revision: entry.revision }],
  success: [],
  failure: [own(entry)],
});

/** Writes the key again, unchanged, so that its watchers are notified of the grant. */
export const announceGrantTxn = (entry: JoinedEntry): Txn => ({
  ...heldTxn(entry),
  success: [put(entry, entry.value)],
  failure: [],
});

/**
 * Writes the keys of a writer again, as those of a reader, unless they were written meanwhile, and reads `ranges`. `alone`: not its delay
 * key, which is gone.
 */
export function downgradeTxn(entry: JoinedEntry, ranges: readonly Range[], alone: boolean): Txn {
  const { key, revision, modified, downgradedValue: value } = entry;
  const { queues, compare, failure } = heldTxn(entry);
  const delays = alone ? [] : delayKeys([entry]);
  const reads = rangeOperations(ranges);
  return {
    queues,
    compare: [
      ...compare,
      { kind: "modified at", key, revision: modified },
      ...delays.map((delay) => ({ kind: "created at", key: delay, revision }) as const),
    ],
    success: [...(alone ? [put(entry, value)] : puts(entry, value)), ...reads],
    failure: [...failure, ...reads],
  };
}

/** Writes the key of an adopted writer again, unchanged, unless it is a reader's by now, and reads `ranges`. */
export function takeOverTxn(entry: JoinedEntry, ranges: readonly Range[]): Txn {
  const { key, value } = entry;
  const { compare, ...announce } = announceGrantTxn(entry);
  return {
    ...announce,
    compare: [...compare, { kind: "value is", key, value }],
    success: [...announce.success, ...rangeOperations(ranges)],
  };
}

/** Deletes exactly this entry, and reads `ranges`, which show the entry that is first after it. */
export function leaveTxn(entry: QueueEntry, ranges: readonly Range[]): Txn {
  const { path, key, value, revision, delayKey, about } = entry;
  const { queues, compare, success } = deletion({ path, key, revision: revision ?? 0n, delayKey });
  const said: Operation[] = about ? [{ kind: "delete", key: about.key }] : [];
  const reads = rangeOperations(ranges);
  // Before its create revision is known, its value shows that it is ours.
  const isOurs = revision === undefined ? [{ kind: "value is", key, value } as const] : compare;
  return { queues, compare: isOurs, success: [...success, ...said, ...reads], failure: reads };
}

/** etcd rejected a join: marks the lease if a key on it, or its delay lease, is the reason. Returns what the caller gets. */
export async function joinRefused(lease: Lease, txn: Txn, error: unknown): Promise<unknown> {
  if (error instanceof LeaseNotFoundError && lease.delay && !putsWithOthers(lease, txn))
    return goneOf(lease, lease.delay);
  const forbidden = error instanceof EtcdRefusedError && error.reason === "permission";
  if (forbidden && (await allowedWithoutLease(lease, txn))) lease.unfit = true;
  return error;
}

/** Also with leases that are not the session's: one of those may be gone, which the caller finds out. */
const putsWithOthers = ({ leaseId, delay }: Lease, { success }: Txn): boolean =>
  success.some((each) => each.kind === "put" && ![0n, leaseId, delay?.leaseId].includes(each.leaseId));

/** A renewal shows which of the two leases is gone. Without its delay lease, the session goes on, and takes no new entries. */
async function goneOf(lease: Lease, delay: DelayLease): Promise<unknown> {
  try {
    await lease.renewNow();
  } catch (end) {
    return end;
  }
  if (!delay.isGone) delay.leaseNotFound();
  return delay.refusal();
}

/**
 * Since 3.6, etcd rejects a put with a lease that has a key which the user may not write, such as a key that another user
 * has put there. It checks permissions before it evaluates the compares, so a transaction whose compares never hold shows
 * what is allowed and writes nothing.
 */
async function allowedWithoutLease(lease: Lease, txn: Txn): Promise<boolean> {
  const never = txn.success.flatMap((operation) => (operation.kind === "put" ? [operation.key] : []));
  const probe: Txn = {
    ...txn,
    compare: [...txn.compare, ...never.map((key) => ({ kind: "created at", key, revision: -1n }) as const)],
    success: txn.success.map((operation) =>
      operation.kind === "put" ? { ...operation, leaseId: 0n } : operation,
    ),
  };
  const policy = { ...lease.policy("check why a join was refused"), giveUpMs: lease.ttlMs / 4 };
  return lease.services.client.txn(probe, policy).then(
    () => true,
    () => false,
  );
}
