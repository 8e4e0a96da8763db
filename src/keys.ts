/**
 * The key layout that leasehold shares with Go's `concurrency` package, `etcdctl lock`, v3lock and jetcd. Keys are always those in
 * etcd. A `name` is the one that users see, and a `path` the same with the prefix of the cluster.
 */

/** Every key of a request begins with the path of a name, or with `MARKS`, `LATCHES` or `BARRIERS` and a path. */
export const pathOf = (
  { options }: { readonly options: { readonly prefix: string } },
  name: string,
): string => `${options.prefix}${name}`;

/** The marks of `once`: no name begins with a slash, so no queue of a cluster contains them. */
export const MARKS = "/leasehold/once/";
/** The same for the counts of latches. */
export const LATCHES = "/leasehold/latch/";
/** The same for what barriers add to the keys that they share with Go's client. */
export const BARRIERS = "/leasehold/barrier/";

/** What candidates say of themselves: outside the queue, as the value of a candidate is its own. No name begins with a slash. */
const CANDIDATES = "/leasehold/candidates/";

/** Where a candidate with this key says it. The last part has the form of no entry's. */
export const aboutKey = (key: string): string => `${CANDIDATES}${key}/about`;

/** The range of all of these keys of an election. */
export function aboutRange(path: string): { readonly key: string; readonly end: string } {
  const key = `${CANDIDATES}${prefixOf(path)}`;
  return { key, end: prefixEnd(key) };
}

/** Every key in a queue has this prefix. */
export const prefixOf = (path: string): string => `${path}/`;

/** etcd's `range_end` for all keys with `prefix`. `prefix` ends with "/", so incrementing the last byte is enough. */
export const prefixEnd = (prefix: string): string => `${prefix.slice(0, -1)}0`;

/** Go's `fmt.Sprintf("%s/%x", name, lease)`, followed by `-n` for the second and later entries of one session. */
export function entryKey(path: string, leaseId: bigint, n: number): string {
  const key = `${path}/${leaseId.toString(16)}`;
  return n === 1 ? key : `${key}-${n}`;
}

/**
 * The second lease of a session with `releaseDelayMs`. It ends that much later than the session's own lease, and with it the second key
 * of each entry, its delay key: the same number under the other lease.
 */
export const delayLeaseOf = (leaseId: bigint): bigint => leaseId | 1n;

/** The ID of a lease that has such a second one: even, and with 16 hexadecimal digits. */
export const delayedLease = (randomId: bigint): bigint => BigInt.asUintN(62, randomId << 1n) | (1n << 62n);

/** The ID of a lease without one: below all IDs of `delayedLease`, so that no key of it is taken for a delay key. */
export const plainLease = (randomId: bigint): bigint => BigInt.asUintN(62, randomId) || 1n;

/** Whether a lease may have a delay lease. A quarter of the IDs that etcd itself chooses are such ones, too. */
export const isDelayed = (leaseId: bigint): boolean =>
  leaseId >> 62n === 1n && delayLeaseOf(leaseId) !== leaseId;

/** Whether this library has made the lease as a delay lease, if it has made it at all. */
export const isDelayLease = (leaseId: bigint): boolean => leaseId >> 62n === 1n && leaseId % 2n === 1n;

/** The last part of a key: such a lease, and the number of the entry. What is before that may have any form. */
const LEASE_PART = /^(.*\/[4-7][0-9a-f]{14})([0-9a-f])(-[1-9]\d*)?$/s;

/** The other key of an entry that has a delay key, and which of the two this is, by the last digit of its lease. */
function otherKey(key: string, isDelay: boolean): string | undefined {
  const [, start, digit, n = ""] = LEASE_PART.exec(key.length > MAX_KEY ? "" : key) ?? [];
  if (start === undefined || digit === undefined) return undefined;
  const value = Number.parseInt(digit, 16);
  return value % 2 === Number(isDelay) ? `${start}${(value ^ 1).toString(16)}${n}` : undefined;
}

/** The key of the entry whose delay key this is, if it is one, and the delay key of an entry, if it has one. As text, or in latin1. */
export const delayedBy = (key: string): string | undefined => otherKey(key, true);
export const delayKeyOf = (key: string): string | undefined => otherKey(key, false);

/** The range of all keys that one session can have under one name: "." follows "-" in ASCII. */
export function sessionRange(path: string, leaseId: bigint): { readonly key: string; readonly end: string } {
  const key = entryKey(path, leaseId, 1);
  return { key, end: `${key}.` };
}

/** A lease ID of 16 hexadecimal digits with a sign, a hyphen and a number: foreign keys can be as long as a request. */
const MAX_LAST_PART = 40;

/** Longer keys are no entry's: a name has at most 1024 bytes, and a prefix 256. */
const MAX_KEY = 2048;

/** The name and number of an entry of `leaseId`, or undefined if `key` is not the key of one. */
export function parseEntryKey(
  key: string,
  leaseId: bigint,
): { readonly name: string; readonly n: number } | undefined {
  const slash = key.lastIndexOf("/");
  if (key.length - slash > MAX_LAST_PART) return undefined;
  const [id, n, rest] = key.slice(slash + 1).split("-");
  if (slash < 1 || id !== leaseId.toString(16) || rest !== undefined) return undefined;
  if (n === undefined) return { name: key.slice(0, slash), n: 1 };
  return /^[1-9]\d*$/.test(n) && n !== "1" ? { name: key.slice(0, slash), n: Number(n) } : undefined;
}

/** The maximum number of permits of a semaphore. */
export const MAX_PERMITS = 1000;

/** The part of a weighted semaphore that an entry takes. */
export interface Share {
  /** How many permits there are. */
  readonly permits: number;
  /** How many of them the entry takes: 1 to `permits`. */
  readonly weight: number;
}

/** The bounds of a priority: those of a candidate, too. */
export const MAX_PRIORITY = 1000;
/** The maximum of a timer. */
export const MAX_AGING_MS = 2_147_483_647;

/** What orders the calls of a Mutex with `priorities`. */
export interface Priority {
  /** Higher is sooner. */
  readonly level: number;
  /** So much longer waiting weighs as much as one level. */
  readonly agingMs: number;
  /** The key is that of a hold, and not that of a call that waits. */
  readonly granted?: true;
}

/** The value of an entry, for `inspect`. After a lost reply, `id` identifies the entry. */
export interface EntryValue {
  readonly owner: string;
  readonly since: string;
  readonly id: string;
  /** For a semaphore: how many may hold at a time. */
  readonly permits?: number;
  /** For a weighted one. It has no field `permits`: an older client would count the entry as one permit, and so rejects its own call. */
  readonly weighted?: Share;
  /** For a Mutex with `priorities`. */
  readonly priority?: Priority;
  /** Why its caller wants the lock. */
  readonly reason?: string;
  /** For a sticky lock: its session may keep the key while nobody has the lock. */
  readonly sticky?: boolean;
  /** For a call with `supersede`: a newer one may take its place in the queue. */
  readonly supersede?: boolean;
  /** For a web lock: the manager that requested it. */
  readonly client?: string;
  /** For a writer that has become a reader: readers hold beside it. */
  readonly downgraded?: boolean;
}

/** What this library writes has at most 4 KiB, and `proclaim` takes 64 KiB. To parse a value of a megabyte stops the event loop. */
const MAX_VALUE = 65_536;

/** What a value shows of an entry of this library; nothing if another client wrote it. */
export function parseEntryValue(value: string): Partial<EntryValue> {
  // To let JSON.parse fail costs twenty microseconds: half a second for all keys that a board has room for.
  if (value.length > MAX_VALUE || !/^\s*\{/.test(value)) return {};
  try {
    const parsed: unknown = JSON.parse(value);
    if (typeof parsed !== "object" || parsed === null) return {};
    const { owner, since, id, permits, weighted, priority, client, reason, sticky, downgraded, supersede } =
      parsed as Record<string, unknown>;
    const found: { -readonly [K in keyof EntryValue]?: EntryValue[K] } = {};
    if (typeof owner === "string") found.owner = owner;
    if (typeof since === "string") found.since = since;
    if (typeof id === "string") found.id = id;
    if (isPermits(permits)) found.permits = permits;
    else if (permits === undefined && isShare(weighted))
      found.weighted = { permits: weighted.permits, weight: weighted.weight };
    else if (permits === undefined && weighted === undefined && isPriority(priority))
      found.priority = priorityOf(priority);
    if (typeof client === "string") found.client = client;
    if (typeof reason === "string") found.reason = reason;
    if (sticky === true) found.sticky = true;
    if (downgraded === true) found.downgraded = true;
    if (supersede === true) found.supersede = true;
    return found;
  } catch {
    // Go and etcdctl write empty or arbitrary values: their entries have no owner to show.
    return {};
  }
}

const isPermits = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= MAX_PERMITS;

function isShare(value: unknown): value is Share {
  const { permits, weight } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return isPermits(permits) && isPermits(weight) && weight <= permits;
}

function isPriority(value: unknown): value is Priority {
  const { level, agingMs, granted } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const isLevel = typeof level === "number" && Number.isInteger(level) && Math.abs(level) <= MAX_PRIORITY;
  const isAging = typeof agingMs === "number" && agingMs >= 1 && agingMs <= MAX_AGING_MS;
  return isLevel && isAging && (granted === undefined || granted === true);
}

const priorityOf = ({ level, agingMs, granted }: Priority): Priority =>
  granted ? { level, agingMs, granted } : { level, agingMs };
