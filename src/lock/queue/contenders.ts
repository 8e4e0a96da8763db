import type { Contender } from "../../contender.js";
import { EtcdRefusedError } from "../../errors.js";
import type { KeyValue, Range, RangeAnswer } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import type { Waited } from "../hold/acquire.js";
import type { EtcdServices } from "../session/connection.js";
import { delayedBy, pathOf } from "../../keys.js";
import { queueRange } from "./lock-mode.js";
import { everyEntry } from "./priority-mode.js";
import { type Aged, byAge, SeenEntry, splitQueue, withoutDelayKeys } from "./seen-entry.js";

/** What all requests of one call share. */
export interface Asking {
  readonly services: EtcdServices;
  readonly policy: CallPolicy;
}

/** etcd has compacted the revision of this read, or lost it in a restore. */
export const revisionIsGone = (error: unknown): boolean =>
  error instanceof EtcdRefusedError && error.details.includes("mvcc: required revision");

/** Repeats `read`, whose requests are all for one revision, until etcd has had it throughout. */
export async function atOneRevision<T>(read: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if (!revisionIsGone(error)) throw error;
    }
  }
}

/** The smallest key behind `key`. */
export const after = (key: Buffer): Buffer => Buffer.concat([key, Buffer.of(0)]);

/** `revision`: of the first page, and so of all. */
interface Page extends Pick<RangeAnswer, "kvs" | "more"> {
  readonly revision: bigint;
}

/** Without a revision, the present state is read. */
type PagedRange = Pick<Range, "key" | "end" | "keysOnly"> & { readonly revision?: bigint | undefined };

/**
 * The keys of a range at one revision; `size` limits page n, from 0.
 * In pages by key, because a page by create revision could end between two keys of one revision.
 */
export async function* readPages(
  { services: { client }, policy }: Asking,
  { revision, key, ...range }: PagedRange,
  size: (page: number) => number,
): AsyncGenerator<Page, void, undefined> {
  for (let n = 0, next: Range["key"] | undefined = key; next !== undefined; n++) {
    const at = revision === undefined ? {} : { revision };
    const { header, kvs, more } = await client.range({ ...at, limit: size(n), ...range, key: next }, policy);
    revision ??= header.revision;
    const last = kvs.at(-1);
    next = more && last ? after(last.key) : undefined;
    yield { kvs, more: next !== undefined, revision };
  }
}

/** Keys at one revision, by their bytes in latin1, in the order of their create revisions. */
export interface Snapshot<K> {
  readonly revision: bigint;
  readonly keys: Map<string, K>;
}

/** A key with its revisions takes about 100 bytes. */
const KEYS = 1000;
/** Other clients may have written values of 1.5 MiB, and an answer has at most 256 MiB. */
const VALUES = 100;

/** What is kept of each key that is read. */
export interface Keeping<K> {
  readonly keep: (kv: KeyValue) => K;
  /** Gets how many keys a read has found, after each page: what it throws ends the read. */
  readonly check?: (count: number) => void;
}

/** All keys of a range. */
export async function readKeys<K>(
  asking: Asking,
  range: PagedRange,
  { keep, check }: Keeping<K>,
): Promise<Snapshot<K>> {
  const found: { bytes: string; createRevision: bigint; kept: K }[] = [];
  let at = 0n;
  for await (const { kvs, revision } of readPages(asking, range, () => (range.keysOnly ? KEYS : VALUES))) {
    at = revision;
    for (const kv of kvs)
      found.push({ bytes: kv.key.toString("latin1"), createRevision: kv.createRevision, kept: keep(kv) });
    check?.(found.length);
  }
  found.sort(byAge);
  return { revision: at, keys: new Map(found.map(({ bytes, kept }) => [bytes, kept])) };
}

/** The entry that a key stands for: etcd gives keys of one create revision in any order, and this may be its delay key. */
export async function entryBeside(
  { services: { client }, policy }: Asking,
  kv: KeyValue,
  revision: bigint,
): Promise<KeyValue> {
  const key = delayedBy(kv.key.toString("latin1"));
  if (key === undefined) return kv;
  const {
    kvs: [entry],
  } = await client.range({ key: Buffer.from(key, "latin1"), revision }, policy);
  return entry?.createRevision === kv.createRevision ? entry : kv;
}

/** Milliseconds that each lease has left by etcd's word; a lease that has ended has none. */
export async function remainingTtls(
  { client }: EtcdServices,
  leaseIds: Iterable<bigint>,
  policy: CallPolicy,
): Promise<ReadonlyMap<bigint, number>> {
  const ttls = new Map<bigint, number>();
  const distinct = new Set(leaseIds);
  distinct.delete(0n);
  await Promise.all(
    [...distinct].map(async (leaseId) => {
      // Without the keys: this user may not be permitted to read all of them.
      const { ttlSeconds } = await client.call(
        (member, options) => member.timeToLive(leaseId, { ...options, withoutKeys: true }),
        policy,
      );
      if (ttlSeconds >= 0) ttls.set(leaseId, ttlSeconds * 1000);
    }),
  );
  return ttls;
}

/** The holder and the number of contenders before a place in the queue. */
export interface Ahead {
  readonly holder: Contender | undefined;
  readonly ahead: number;
}

export interface Reading {
  /** The create revisions of all entries, in the order in which they are served. */
  readonly revisions: readonly bigint[];
  readonly holder: Contender | undefined;
}

/** Holder and number of contenders before `revision`; before the end of the queue if the revision is not known. */
export async function readContendersAhead(
  services: EtcdServices,
  { name, revision }: Waited,
  policy: CallPolicy,
): Promise<Ahead> {
  const { readings } = services;
  const reading =
    readings.get(name) ?? readQueue(services, name, policy).finally(() => readings.delete(name));
  readings.set(name, reading);
  const { revisions, holder } = await reading;
  const at = revision === undefined ? -1 : revisions.indexOf(revision);
  const isBefore = (other: bigint): boolean => revision === undefined || other < revision;
  // A place of ours that has ended since has no other place than that of its revision.
  const ahead = at >= 0 ? at : revisions.filter(isBefore).length;
  return { holder: ahead > 0 ? holder : undefined, ahead };
}

/** Calls with priorities: their values say who holds, and who is next. */
async function readRanked(
  services: EtcdServices,
  name: string,
  policy: CallPolicy,
): Promise<{ readonly first: KeyValue | undefined; readonly revisions: readonly bigint[] }> {
  const path = pathOf(services, name);
  const { kvs } = await services.client.range(everyEntry(path), policy);
  const { holders, waiters } = splitQueue(path, kvs.map((kv) => new SeenEntry(kv)).sort(byAge));
  const [holder] = holders;
  const revisions = [...holders, ...waiters].map(({ createRevision }) => createRevision);
  return { first: kvs.find(({ createRevision }) => createRevision === holder?.createRevision), revisions };
}

async function readQueue(services: EtcdServices, name: string, policy: CallPolicy): Promise<Reading> {
  const keep = ({ key, createRevision }: KeyValue): Aged => ({ bytes: key, createRevision });
  const revisionsOf = (keys: readonly Aged[]): bigint[] =>
    withoutDelayKeys([...keys].sort(byAge)).map(({ createRevision }) => createRevision);
  const range = queueRange(pathOf(services, name));
  const { first, revisions } = await atOneRevision(async () => {
    const oldest = { order: "oldest first", limit: VALUES, ...range } as const;
    const { header, kvs, more } = await services.client.range(oldest, policy);
    const first = kvs[0] && (await entryBeside({ services, policy }, kvs[0], header.revision));
    if (first && new SeenEntry(first).priority) return readRanked(services, name, policy);
    if (!more) return { first, revisions: revisionsOf(kvs.map(keep)) };
    // Without the values of all others: the call that waits for this has half a second left.
    const all = { revision: header.revision, keysOnly: true, ...range };
    const { keys } = await readKeys({ services, policy }, all, { keep });
    return { first, revisions: revisionsOf([...keys.values()]) };
  });
  if (!first) return { revisions, holder: undefined };
  const ttls = await remainingTtls(services, [first.leaseId], policy);
  const entry = new SeenEntry(first);
  return { revisions, holder: entry.contenderIn(name, "holding", ttls.get(first.leaseId)) };
}
