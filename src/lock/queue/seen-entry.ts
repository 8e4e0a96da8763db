import type { Contender } from "../../contender.js";
import type { KeyValue } from "../../etcd/port.js";
import { compactKey, keyText } from "../../etcd/watch.js";
import {
  delayedBy,
  isDelayLease,
  MAX_PERMITS,
  parseEntryKey,
  parseEntryValue,
  type Priority,
  type Share,
} from "../../keys.js";

import { MOST, rankOf } from "./priority-mode.js";

/** What made the queue of a name, as far as its keys and values show. */
export type QueueKind = "mutex" | "rwlock" | "semaphore" | "election" | "members" | "unknown";

/** Longer texts are no times. */
const MAX_SINCE = 40;
/** The limit that the options `owner` and `reason` have. Another client may have written more. */
const MAX_TEXT_BYTES = 256;
/** The last part of the keys of this library, of Go's client, etcdctl and jetcd. */
const LEASE_AND_NUMBER = /^[1-9a-f][0-9a-f]{0,15}(-[1-9][0-9]*)?$/;
/** The directory of the members of a group, and what the value of a member begins with. */
const MEMBERS = "/members";
const MEMBER_VALUE = '{"member":';

/** Keys that are no text, by the contender that shows them. */
const binaryKeys = new WeakMap<Contender, Buffer>();

/** The exact key of a contender that this process has read, whose caller has checked `contender.key`. */
export function exactKey(contender: Contender): string | Buffer {
  const bytes = binaryKeys.get(contender);
  return bytes?.toString() === contender.key ? bytes : contender.key;
}

/**
 * What is kept of a key below a name, whoever has put it. All that is kept of its value is bounded, whatever the value is.
 * A key counts in the queue of its own name and in those of the names above it, so an entry belongs to no queue.
 */
export class SeenEntry {
  /** The key as etcd has it. */
  readonly bytes: string | Buffer;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  /** 0n: no lease. It needs a read with values: etcd 3.7 omits it from a keys-only read (etcd-io/etcd#22209). */
  readonly leaseId: bigint = 0n;
  /** `undefined` for entries made by other clients (Go, etcdctl). */
  readonly owner: string | undefined;
  /** When it joined the queue, by the clock of its client. */
  readonly since: Date | undefined;
  /** How many permits there are; so many hold at most, while it is the oldest. */
  readonly permits: number | undefined;
  /** What it takes of a weighted semaphore. */
  readonly weighted: Share | undefined;
  /** Of a call of a Mutex with `priorities`, whether it waits or holds. */
  readonly priority: Priority | undefined;
  /** Why its caller wants the lock, if it has said so. */
  readonly reason: string | undefined;
  /** Whether its session may keep it while no caller has the lock. */
  readonly sticky: boolean = false;
  /** Whether it is a writer that has become a reader, if it is in the folder of the writers. */
  readonly downgraded: boolean = false;
  /** The value of a candidate of an election. */
  readonly value: string | undefined;
  /** The kind of a queue in which the key is directly under the name. */
  readonly #kind: QueueKind = "unknown";
  /** Whether the key is the delay key of an entry of this library. Alone, without the entry, it shows that the client of that has died. */
  readonly isDelay: boolean = false;

  /** `isRead`: with its value. */
  constructor(
    kv: KeyValue,
    readonly isRead = true,
  ) {
    this.bytes = compactKey(kv.key);
    this.createRevision = kv.createRevision;
    this.modRevision = kv.modRevision;
    if (!isRead) return;
    const parsed = parseEntryValue(kv.value);
    const {
      owner,
      since,
      permits,
      weighted,
      priority,
      id,
      reason,
      sticky = false,
      downgraded = false,
    } = parsed;
    this.leaseId = kv.leaseId;
    this.owner = owner === undefined ? undefined : cut(owner);
    this.reason = reason === undefined ? undefined : cut(reason);
    this.since = dateOf(since);
    this.permits = permits ?? weighted?.permits;
    this.weighted = weighted;
    this.priority = this.since && priority;
    const key = this.bytes.toString();
    if (kv.leaseId === 0n || !LEASE_AND_NUMBER.test(key.slice(key.lastIndexOf("/") + 1))) return;
    const isOurs = owner !== undefined && since !== undefined && id !== undefined;
    // A permit has no such key. A quarter of the leases that etcd has named look like that of one.
    const mayBeDelay = isOurs && this.permits === undefined && isDelayLease(kv.leaseId);
    this.isDelay = mayBeDelay && parseEntryKey(key, kv.leaseId) !== undefined;
    this.sticky = isOurs && sticky && !this.isDelay;
    this.downgraded = isOurs && downgraded;
    // Go's mutex, etcdctl lock and jetcd write an empty value; a candidate's value is what it wants to tell.
    const other = isOurs || kv.value === "" ? "mutex" : "election";
    this.#kind = this.permits === undefined ? other : "semaphore";
    const isMember = owner !== undefined && kv.value.startsWith(MEMBER_VALUE);
    if (isMember && key.slice(0, key.lastIndexOf("/")).endsWith(MEMBERS)) {
      this.#kind = "members";
      // No member waits for another one.
      this.permits = MAX_PERMITS;
    }
    if (this.#kind === "election") this.value = cut(kv.value);
  }

  /** With U+FFFD in the place of bytes that are no text. */
  get key(): string {
    return this.bytes.toString();
  }

  /** So many of the oldest entries may hold while it is the oldest one. */
  get reach(): number {
    return this.priority ? MOST : (this.permits ?? 1);
  }

  /** Its place in the order of calls with priorities: the lowest is next. */
  get rank(): number {
    return this.priority && this.since ? rankOf(this.since.getTime(), this.priority) : Infinity;
  }

  /** What it makes of this queue. */
  kindIn(path: string): QueueKind {
    if (this.#kind === "unknown") return "unknown";
    const place = this.placeIn(path);
    if (place === "reader" || place === "writer") return "rwlock";
    return place === "direct" ? this.#kind : "unknown";
  }

  /**
   * Where it is in this queue: in the folder of the readers or of the writers, directly under the name, or deeper,
   * in the queue of a nested name. "below readers": deeper, in the folder of the readers.
   */
  placeIn(path: string): "reader" | "writer" | "direct" | "below readers" | "below" {
    const { bytes } = this;
    const start = (typeof bytes === "string" ? path.length : Buffer.byteLength(path)) + 1;
    const slash = bytes.indexOf("/", start);
    if (slash === -1) return "direct";
    const isDeep = bytes.includes("/", slash + 1);
    // A foreign part may have a million bytes.
    const folder = slash - start > "write".length ? "" : bytes.slice(start, slash).toString();
    if (folder === "read") return isDeep ? "below readers" : "reader";
    return folder === "write" && !isDeep ? "writer" : "below";
  }

  /** Whether a reader behind it in this queue holds, if it does. */
  admitsReadersIn(path: string): boolean {
    const place = this.placeIn(path);
    return place === "reader" || place === "below readers" || (place === "writer" && this.downgraded);
  }

  /** `place`: what it does there if its client lives. */
  contenderIn(name: string, place: "holding" | "waiting", ttlRemainingMs?: number): Contender {
    const state = this.isDelay ? "dead" : place;
    const { key, createRevision: revision, leaseId, owner, reason, sticky, value, bytes } = this;
    const weighted = this.weighted && { ...this.weighted };
    // The caller may change its date.
    const since = this.since && new Date(this.since);
    const priority = this.priority?.level;
    const shown = { reason, sticky, weighted, priority, value, ttlRemainingMs };
    const data = { name, key, state, revision, leaseId, owner, since, ...shown };
    const toJSON = (): Record<string, unknown> => ({
      ...data,
      revision: revision.toString(),
      leaseId: leaseId.toString(),
    });
    // Not enumerable, so that logs and comparisons show only the data.
    const contender = Object.defineProperty(data, "toJSON", { value: toJSON }) as unknown as Contender;
    if (typeof bytes !== "string") binaryKeys.set(contender, bytes);
    return contender;
  }
}

/** Cuts between two characters, never within one. */
export function cut(text: string): string {
  // Not by a TextEncoder: some test environments have none. A part of the longer string would keep all of it in memory.
  if (Buffer.byteLength(text) <= MAX_TEXT_BYTES) return text;
  const bytes = Buffer.alloc(MAX_TEXT_BYTES);
  return bytes.toString("utf8", 0, bytes.write(text));
}

function dateOf(since: string | undefined): Date | undefined {
  const date = new Date(since === undefined || since.length > MAX_SINCE ? NaN : since);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

/** The order of a queue. A transaction may put several keys at one revision. */
export function byAge(a: Aged, b: Aged): number {
  if (a.createRevision !== b.createRevision) return a.createRevision < b.createRevision ? -1 : 1;
  const [one, other] = [keyText(a.bytes), keyText(b.bytes)];
  return one === other ? 0 : one < other ? -1 : 1;
}

export type Aged = Pick<SeenEntry, "createRevision" | "bytes">;

/** Without the delay keys whose entries are there, too. `entries`: in the order of the queue. */
export function withoutDelayKeys<E extends Aged>(entries: readonly E[]): readonly E[] {
  // Hardly any two keys have one create revision.
  if (!entries.some((entry, n) => entry.createRevision === entries[n - 1]?.createRevision)) return entries;
  const together = new Map<bigint, Set<string>>();
  for (const { createRevision, bytes } of entries)
    together.set(createRevision, (together.get(createRevision) ?? new Set<string>()).add(keyText(bytes)));
  return entries.filter(({ createRevision, bytes }) => {
    const keys = together.get(createRevision);
    return !keys || keys.size === 1 || !keys.has(delayedBy(keyText(bytes)) ?? "");
  });
}

/**
 * Who holds, by the rules of the lock modes: every key under the name counts, of whatever client. A reader holds
 * while only readers are before it, and writers that have become readers; a permit, while fewer keys are before it than the oldest one has
 * in its value (1 if it has none); a weighted one, while the weights of all up to it are no more than that; the key of a hold with a
 * priority, in any place; any other key, while it is the oldest. `entries`: in the order of the queue, without the delay keys of others.
 */
export function holdersIn(path: string, entries: readonly SeenEntry[]): readonly SeenEntry[] {
  const [oldest] = entries;
  const holders: SeenEntry[] = [];
  if (!oldest) return holders;
  const room = new Room(oldest);
  let onlyReaders = true;
  for (const [rank, entry] of entries.entries()) {
    // There may be thousands behind them.
    if (rank >= room.permits && !onlyReaders) break;
    const place = entry.placeIn(path);
    const hasRoom = room.has(entry, place, rank);
    if (place === "reader" ? onlyReaders : hasRoom) holders.push(entry);
    onlyReaders &&= entry.admitsReadersIn(path);
  }
  return holders;
}

type PlaceInQueue = ReturnType<SeenEntry["placeIn"]>;

/** Counts the entries of a queue, the oldest first: which of them have room beside those before them. */
export class Room {
  /** The number that rules. So many hold at most. */
  readonly permits: number;
  readonly #isWeighted: boolean;
  /** The value of an entry says whether it holds. */
  readonly isRanked: boolean;
  /** Infinity: one of them is not weighted, and excludes each that is. */
  #load = 0;

  constructor({ reach, weighted, priority }: SeenEntry) {
    this.permits = reach;
    this.isRanked = priority !== undefined;
    this.#isWeighted = weighted !== undefined;
  }

  /** Whether there is room for the next entry, which is no reader. `rank`: how many are before it. */
  has(entry: SeenEntry, place: PlaceInQueue, rank: number): boolean {
    const { permits, weighted, priority } = entry;
    if (this.isRanked) return priority?.granted === true && place === "direct";
    this.#load += weighted?.weight ?? Infinity;
    if (rank === 0 || place !== "direct") return rank === 0;
    if (weighted) return this.#load <= this.permits;
    return permits !== undefined && !this.#isWeighted && rank < this.permits;
  }
}

/** The entries of a queue, in its order. */
export interface Split {
  readonly holders: readonly SeenEntry[];
  readonly waiters: readonly SeenEntry[];
}

export function splitQueue(path: string, all: readonly SeenEntry[]): Split {
  const entries = withoutDelayKeys(all);
  const holders = holdersIn(path, entries);
  const held = new Set(holders);
  const waiters = entries.filter((entry) => !held.has(entry));
  return { holders, waiters: entries[0]?.priority ? inTurn(waiters) : waiters };
}

/** In the order of calls with priorities. `waiters`: the oldest first. */
export const inTurn = (waiters: readonly SeenEntry[]): readonly SeenEntry[] => [...waiters].sort(byRank);

const byRank = ({ rank: a }: SeenEntry, { rank: b }: SeenEntry): number => (a === b ? 0 : a < b ? -1 : 1);

/** By the oldest entry that shows it. */
export function kindOfQueue(path: string, entries: Iterable<SeenEntry>): QueueKind {
  for (const entry of entries) {
    const kind = entry.kindIn(path);
    if (kind !== "unknown") return kind;
  }
  return "unknown";
}
