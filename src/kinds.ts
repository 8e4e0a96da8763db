import { type EntryValue, MARKS, parseEntryKey, parseEntryValue } from "./keys.js";

/**
 * What is acquired: by which class, or in which mode. `weighted`: by a weighted Semaphore. `priority`: by a Mutex with `priorities`. `all`:
 * by `lockAll`.
 */
export type LockKind =
  "mutex" | "reader" | "writer" | "permit" | "weighted" | "priority" | "all" | "leadership" | "web_lock";

/** "unknown": the entry does not show its kind, as the entries of Go's `Mutex`, `etcdctl lock` and jetcd do not. */
export type FoundKind = LockKind | "unknown";

/** What a key and its value show of an entry. */
export interface FoundEntry {
  /** The name of its queue, which is another one if the names are nested. */
  readonly name: string;
  readonly kind: FoundKind;
  /** The key is a mark of `once`. */
  readonly isMark?: true;
}

/**
 * Kinds of one group share a queue: a mutex and each lock of `lockAll` exclude as a writer does. A permit counts the entries
 * before it, a weighted one adds their weights, calls with priorities are not served in the order of their keys, and the value of a candidate is its
 * proclamation, so none of these can share a queue with another group.
 */
const GROUPS: Readonly<Record<LockKind, "locks" | "permits" | "weights" | "priorities" | "candidates">> = {
  mutex: "locks",
  all: "locks",
  reader: "locks",
  writer: "locks",
  web_lock: "locks",
  permit: "permits",
  weighted: "weights",
  priority: "priorities",
  leadership: "candidates",
};

export const isSameGroup = (a: LockKind, b: FoundKind): boolean => b !== "unknown" && GROUPS[a] === GROUPS[b];

/** Whether an entry of `kind` may hold beside others that are before it, so that each of them counts. */
export const isCounted = (kind: LockKind): boolean =>
  GROUPS[kind] === "permits" || GROUPS[kind] === "weights";

/** Whether an entry of `kind` may wait for an entry of the same name: an unknown one excludes all others. */
export const mayMeet = (kind: LockKind, found: FoundKind): boolean =>
  found === "unknown" ? !isCounted(kind) && kind !== "priority" : GROUPS[kind] === GROUPS[found];

/** A key in the range of a queue. */
interface RangeKey {
  readonly key: Buffer;
  readonly value: string;
  readonly leaseId: bigint;
}

const FOLDER = /^(.+)\/(read|write)$/s;

/** The end of the mark of a slot, or of a floor, of `once`. */
const MARK_END = /\/\/-?\d{16}$/;
const MARK_END_LENGTH = "//-".length + 16;

/**
 * What a key under `name` shows. Undefined if it is no entry of a lease: such a key has the name and the kind of no lock.
 * A mutex `a/read` has the keys that the readers of `a` have. `prefix`: of the cluster.
 */
export function entryFound(
  name: string,
  { key, value, leaseId }: RangeKey,
  prefix: string,
): FoundEntry | undefined {
  const relative = key.toString().slice(prefix.length);
  if (leaseId === 0n) return markFound(relative);
  const directory = parseEntryKey(relative, leaseId)?.name;
  if (directory === undefined) return undefined;
  if (directory === name) return { name, kind: kindOfValue(value) };
  const [, above, folder] = FOLDER.exec(directory) ?? [];
  if (above === undefined) return { name: directory, kind: kindOfValue(value) };
  const isWebLock = startsAsOurs(value) && parseEntryValue(value).client !== undefined;
  if (isWebLock) return { name: above, kind: "web_lock" };
  return { name: above, kind: folder === "read" ? "reader" : "writer" };
}

/**
 * Older versions put the marks of a cluster with a prefix into the queue of the prefix's own name. A mark never ends, so a call must
 * not wait for it. `once` takes its lock as a mutex does. Any client may have put the key, which can be as long as a request: it is
 * parsed from its end, in linear time.
 */
function markFound(key: string): FoundEntry | undefined {
  const end = MARK_END.exec(key.slice(-MARK_END_LENGTH))?.[0];
  if (end === undefined) return undefined;
  const name = key.slice(0, -end.length);
  const marks = name.indexOf(MARKS);
  return marks === -1 || marks + MARKS.length === name.length
    ? undefined
    : { name, kind: "mutex", isMark: true };
}

/** Longer values are those of candidates: an owner has at most 256 bytes. */
const MAX_VALUE = 4096;
const startsAsOurs = (value: string): boolean => value.length <= MAX_VALUE && value.startsWith(`{"owner":`);

/**
 * The kind of an entry directly under a name. A candidate may have any value: one that resembles the value of a lock, but
 * is not exactly what this library writes, is unknown.
 */
function kindOfValue(value: string): FoundKind {
  if (value === "") return "unknown";
  const { owner, since, id, permits, weighted, priority } = startsAsOurs(value) ? parseEntryValue(value) : {};
  if (owner === undefined || since === undefined || id === undefined) return "leadership";
  if (permits !== undefined) return "permit";
  if (weighted !== undefined) return "weighted";
  // Without a time, it has no place in their order.
  if (priority !== undefined) return TIME.test(since) ? "priority" : "unknown";
  return isExact(value, { owner, since, id }) ? "mutex" : "unknown";
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const ID = /^[0-9a-z]{1,13}$/;

const isExact = (value: string, { owner, since, id }: EntryValue): boolean =>
  TIME.test(since) && ID.test(id) && value === JSON.stringify({ owner, since, id });

/** Whether `value` is that of a mutex or a permit, which no candidate has. */
export const isLockValue = (value: string): boolean => {
  const kind = kindOfValue(value);
  return kind === "mutex" || kind === "permit" || kind === "weighted" || kind === "priority";
};
