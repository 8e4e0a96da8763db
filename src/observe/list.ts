import type { Contender } from "../contender.js";
import type { KeyValue, Range } from "../etcd/port.js";
import { delayedBy, pathOf, prefixOf } from "../keys.js";
import { checkOptions, checkPrefix, checkWait, rangeError, typeError } from "../base/options/check.js";
import {
  after,
  type Asking,
  atOneRevision,
  entryBeside,
  readKeys,
  readPages,
  remainingTtls,
  revisionIsGone,
} from "../lock/queue/contenders.js";
import { queueRange } from "../lock/queue/lock-mode.js";
import { byAge, holdersIn, type QueueKind, SeenEntry, withoutDelayKeys } from "../lock/queue/seen-entry.js";
import { type Cluster, servicesOf } from "../lock/session/cluster.js";
import type { WaitOptions } from "../lock/session/session-options.js";
import { inSlices, pathIn, Queues } from "./board-queues.js";
import { ask, checkLimit } from "./inspect.js";
import type { BoardQueue } from "./live-queue.js";

/** Where the next page of a listing begins. */
interface Position {
  /** Each page reads the state at this revision. */
  readonly revision: bigint;
  readonly key: Buffer;
  /** The paths of the names above this position that are listed already: each is a prefix of the next one, and of the key. */
  readonly above: readonly string[];
}

/** Changes with the meaning of the fields, so that a cursor of another version is not misread. */
const VERSION = 1;

/** Opaque to users. It contains what the pages before it have read, and no secret. */
export function cursorOf(prefix: string, { revision, key, above }: Position): string {
  const fields = [VERSION, prefix, revision.toString(), key.toString("base64"), above];
  return Buffer.from(JSON.stringify(fields)).toString("base64url");
}

/** @throws TypeError | RangeError */
export function positionOf(prefix: string, cursor: unknown): Position | undefined {
  if (cursor === undefined) return undefined;
  if (typeof cursor !== "string") throw typeError("cursor", RULE, cursor);
  const fields = fieldsOf(cursor);
  const position = fields && decoded(fields);
  if (!position || fields[1] !== prefix || !position.key.toString("latin1").startsWith(latin1(prefix)))
    throw rangeError("cursor", RULE, cursor);
  return position;
}

const RULE = "a cursor that list() has returned for the same prefix";

const latin1 = (text: string): string => Buffer.from(text).toString("latin1");

function fieldsOf(cursor: string): readonly unknown[] | undefined {
  try {
    const fields: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    return Array.isArray(fields) && fields[0] === VERSION ? fields : undefined;
  } catch {
    return undefined;
  }
}

function decoded([, , revision, key, above]: readonly unknown[]): Position | undefined {
  if (typeof revision !== "string" || !/^[1-9]\d{0,18}$/.test(revision)) return undefined;
  if (BigInt.asIntN(64, BigInt(revision)) !== BigInt(revision)) return undefined;
  if (typeof key !== "string" || !Array.isArray(above)) return undefined;
  const names: readonly unknown[] = above;
  if (!names.every((name) => typeof name === "string")) return undefined;
  return { revision: BigInt(revision), key: Buffer.from(key, "base64"), above: names };
}

/** A part of the names under a prefix. */
interface NamesPage {
  readonly paths: readonly string[];
  /** Those that have delay keys beside their entries, as far as this page has read them: their keys are more than their contenders. */
  readonly delayed: ReadonlySet<string>;
  /** Where the next page begins; undefined after the last name. */
  readonly next: Position | undefined;
  readonly revision: bigint;
}

/** Which names to find. */
interface Search {
  /** The path of the prefix. */
  readonly prefix: string;
  readonly limit: number;
  /** Default: the first name, at the present revision. */
  readonly from?: (Pick<Position, "key" | "above"> & { readonly revision?: bigint }) | undefined;
}

/** In one request, at first and at most: a name has one key or thousands of them. A key takes about 100 bytes. */
const FIRST_KEYS = 100;
const MAX_KEYS = 1001;
/** So many requests end a page that has not found `limit` names: a prefix may have any number of other keys. */
const MAX_REQUESTS = 20;

/**
 * The names that have entries, in the order of their first keys; only keys are read, without values. The keys of a name
 * have those of nested names between them, so no key can be skipped; a name is found once nevertheless.
 */
async function findNames(asking: Asking, { prefix, limit, from }: Search): Promise<NamesPage> {
  const { key: first, end } = prefixRange(prefix);
  const paths: string[] = [];
  const revisions = new Map<string, bigint>();
  const above = new Above(from?.above ?? []);
  let key = from?.key ?? first;
  let [revision, more, requests] = [0n, true, 0];
  const found = (hasNext: boolean): NamesPage => {
    const next = hasNext ? { revision, key, above: above.paths } : undefined;
    return { paths, delayed: above.end(), revision, next };
  };
  const range = { revision: from?.revision, keysOnly: true, key, end };
  const size = (n: number): number => Math.min(MAX_KEYS, Math.max(FIRST_KEYS, limit + 1) << n);
  for await (const page of readPages(asking, range, size)) {
    ({ revision, more } = page);
    for (const kv of page.kvs) {
      const path = pathIn(kv.key, asking.services.options.prefix);
      if (path !== undefined && above.goTo(path) && path.startsWith(prefix)) {
        // This name begins the next page.
        if (paths.length === limit) return found(true);
        paths.push(path);
        above.enter(path);
      }
      const text = kv.key.toString("latin1");
      const entry = delayedBy(text);
      if (entry !== undefined && revisions.get(entry) === kv.createRevision) above.hasDelay();
      revisions.set(text, kv.createRevision);
      key = after(kv.key);
    }
    if (++requests === MAX_REQUESTS) break;
  }
  return found(more);
}

/** The names above the present key, each nested in the one before. A step costs what it leaves and enters, however many there are. */
class Above {
  readonly #names: { readonly path: string; hasDelay: boolean }[];
  readonly #delayed = new Set<string>();

  constructor(paths: readonly string[]) {
    this.#names = paths.map((path) => ({ path, hasDelay: false }));
  }

  get paths(): readonly string[] {
    return this.#names.map(({ path }) => path);
  }

  /** Leaves the names that are not above a key of this one. Returns whether it is a new name. */
  goTo(path: string): boolean {
    const start = prefixOf(path);
    for (let last; (last = this.#names.at(-1)) && !start.startsWith(prefixOf(last.path));) this.#leave();
    return this.#names.at(-1)?.path !== path;
  }

  enter(path: string): void {
    this.#names.push({ path, hasDelay: false });
  }

  /** The present key is a delay key beside its entry. */
  hasDelay(): void {
    const last = this.#names.at(-1);
    if (last) last.hasDelay = true;
  }

  /** Leaves all names. Returns those that have delay keys. */
  end(): ReadonlySet<string> {
    while (this.#names.length > 0) this.#leave();
    return this.#delayed;
  }

  #leave(): void {
    const left = this.#names.pop();
    if (!left?.hasDelay) return;
    this.#delayed.add(left.path);
    this.hasDelay();
  }
}

/** All keys of the names that start with `prefix`. */
export function prefixRange(prefix: string): { readonly key: Buffer; readonly end: Buffer } {
  // etcd takes no empty key, and the end that it takes for "all keys" is before them in the order of bytes.
  if (prefix === "") return { key: Buffer.of(0), end: Buffer.of(NEVER_IN_TEXT) };
  const end = Buffer.from(prefix);
  // The last byte is less than that too, so it can be incremented.
  end[end.length - 1] = (end.at(-1) ?? 0) + 1;
  return { key: Buffer.from(prefix), end };
}

/** This byte is in no text, so no key of a name starts with it. */
const NEVER_IN_TEXT = 0xff;

/** The options of `list()`. */
export interface ListOptions extends WaitOptions {
  /** At most so many locks in a page, 1..1000. @default 100 */
  readonly limit?: number | undefined;
  /** `cursor` of the page before, for the next page. @default the first page */
  readonly cursor?: string | undefined;
}

/** A name that has entries. */
export interface LockSummary {
  readonly name: string;
  readonly kind: QueueKind;
  /** The first of the holders. Its `ttlRemainingMs` is undefined unless it is dead: `inspect()` reads it. */
  readonly holder: Contender | undefined;
  readonly waiters: number;
}

/** A page of a listing. */
export interface LockPage {
  /** In the order of their first keys. */
  readonly locks: readonly LockSummary[];
  /** For the next page; undefined after the last one. A page may be shorter than `limit`, or empty, and not be the last. */
  readonly cursor: string | undefined;
  /** The revision of etcd whose state this is: the same for all pages, unless etcd has compacted it in between. */
  readonly revision: bigint;
  /** Bigints become decimal strings, dates ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/**
 * The locks and elections whose names start with `prefix`, page by page, with their first holders and the number of their
 * waiters. `prefix` is a plain text prefix, as `etcdctl get --prefix` takes it: with `"jobs"` you get `jobs`, `jobs/a` and
 * `jobs2`, with `"jobs/"` only those below `jobs`, and with `""` all that etcd has. Nested names are listed by themselves,
 * and count as waiters of the names above them, as for the locks. All pages of a listing read the state of one revision; if
 * etcd has compacted it, the further pages read a later one. It needs no session, and no permission but to read the prefix.
 * A page costs one request for its keys, each 32 names, and each queue that readers hold while others wait. `timeoutMs` defaults to 5000.
 * On abort: rejects at once with the signal's own reason.
 * @throws {EtcdUnavailableError} if etcd does not answer in time.
 * @throws {EtcdRefusedError} if etcd rejects a request.
 * @throws {SessionClosedError} if the cluster is closed.
 * @throws {TypeError | RangeError} on a bad prefix, a malformed cursor or other bad options.
 */
export async function list(cluster: Cluster, prefix: string, options?: ListOptions): Promise<LockPage> {
  checkPrefix(prefix);
  const wait = checkWait("list", options, ["limit", "cursor"]);
  const limit = checkLimit("list", options, ["cursor", "signal", "timeoutMs"]);
  const { cursor } = checkOptions("list", options, ["cursor", "limit", "signal", "timeoutMs"]);
  const path = pathOf(servicesOf(cluster), prefix);
  const from = positionOf(path, cursor);
  const what = prefix === "" ? "list all locks" : `list the locks under "${prefix}"`;
  return ask(cluster, { what, wait }, (asking) => pageOf(asking, { prefix: path, limit, from }));
}

async function pageOf(asking: Asking, { from, ...search }: Search): Promise<LockPage> {
  const { page, locks } = await readPage(asking, { ...search, from }).catch((error: unknown) => {
    if (!revisionIsGone(error)) throw error;
    // From the same key on, at the present revision.
    const present = from && { key: from.key, above: from.above };
    return atOneRevision(() => readPage(asking, { ...search, from: present }));
  });
  const cursor = page.next && cursorOf(search.prefix, page.next);
  const found = { locks, cursor, revision: page.revision };
  const toJSON = (): Record<string, unknown> => ({ ...found, revision: found.revision.toString() });
  // Not enumerable, so that logs and comparisons show only the data.
  return Object.defineProperty(found, "toJSON", { value: toJSON }) as LockPage;
}

interface ReadPage {
  readonly page: NamesPage;
  readonly locks: readonly LockSummary[];
}

/** In one request: other clients may have written values of 1.5 MiB, and an answer has at most 256 MiB. */
const MAX_NAMES = 32;

/** The oldest entry of each queue, and etcd's count of all its keys. */
async function readPage(asking: Asking, search: Search): Promise<ReadPage> {
  const page = await findNames(asking, search);
  const { paths, revision, delayed } = page;
  const queues: ListedQueue[] = [];
  for (let n = 0; n < paths.length; n += MAX_NAMES) {
    const batch = paths.slice(n, n + MAX_NAMES);
    const oldest = batch.map((path): Range => ({
      order: "oldest first",
      limit: 1,
      revision,
      ...queueRange(path),
    }));
    const { ranges } = await asking.services.client.ranges(oldest, asking.policy);
    const found = batch.map(async (path, i): Promise<ListedQueue> => {
      const { kvs: [kv] = [], count = 0 } = ranges[i] ?? {};
      const isDelayed = delayed.has(path);
      const seen = kv && new SeenEntry(kv);
      // The page may end between the two keys of an entry.
      const first = kv && seen?.isDelay ? new SeenEntry(await entryBeside(asking, kv, revision)) : seen;
      // Only behind readers do the other keys decide who holds, and delay keys are no contenders.
      const needsAll = !first?.priority && (isDelayed || (count > 1 && isShared(path, first)));
      const listed = { path, first, count, isDelayed, needsAll };
      return { ...listed, ...(await holdersByValue(asking, { ...listed, revision })) };
    });
    queues.push(...(await Promise.all(found)));
  }
  const split = await splitAll(asking, queues, revision);
  const dead = queues.flatMap(({ first }) => (first?.isDelay ? [first.leaseId] : []));
  const ttls = await remainingTtls(asking.services, dead, asking.policy);
  return {
    page,
    locks: queues.map((queue) => summaryOf(asking, queue, { split: split.get(queue.path), ttls })),
  };
}

/** A queue as the list finds it: its oldest entry, or of calls with priorities the one that holds, and the number of its keys. */
interface ListedQueue {
  readonly path: string;
  readonly first: SeenEntry | undefined;
  /** The number of its keys, with delay keys. */
  readonly count: number;
  /** Some of these are delay keys beside their entries. */
  readonly isDelayed: boolean;
  /** All keys must be read. */
  readonly needsAll: boolean;
  /** How many hold, if the values of the entries say that. */
  readonly holders: number | undefined;
}

/** How many hold where the values of the entries decide that: permits, of which an entry of another kind takes none, or calls with priorities. */
async function holdersByValue(
  { services, policy }: Asking,
  {
    path,
    first,
    count,
    isDelayed,
    revision,
  }: Pick<ListedQueue, "path" | "first" | "count" | "isDelayed"> & { readonly revision: bigint },
): Promise<Partial<ListedQueue> & Pick<ListedQueue, "holders">> {
  if (!first?.priority && (!first?.permits || count < 2)) return { holders: undefined };
  // An entry has one delay key at most.
  const limit = isDelayed ? 2 * first.reach : first.reach;
  const oldest: Range = { order: "oldest first", limit, revision, ...queueRange(path) };
  const { kvs } = await services.client.range(oldest, policy);
  const entries = withoutDelayKeys(kvs.map((kv) => new SeenEntry(kv)).sort(byAge));
  const found = holdersIn(path, entries);
  if (!first.priority) return { holders: found.length };
  return { holders: found.length, first: found[0] ?? first, count: entries.length };
}

/** What a queue is shown with, besides its oldest entry: all its keys, and what is left of the leases of dead holders. */
interface More {
  readonly split: BoardQueue | undefined;
  readonly ttls: ReadonlyMap<bigint, number>;
}

/** The first entry holds together with readers. */
const isShared = (path: string, first: SeenEntry | undefined): boolean =>
  first?.admitsReadersIn(path) === true;

function summaryOf({ services }: Asking, queue: ListedQueue, { split, ttls }: More): LockSummary {
  const { path, first, count } = queue;
  const name = path.slice(services.options.prefix.length);
  if (!first) return { name, kind: "unknown", holder: undefined, waiters: count };
  // Between two holds of calls with priorities, nobody holds.
  const isHeld = queue.holders !== 0;
  const holder = isHeld ? first.contenderIn(name, "holding", ttls.get(first.leaseId)) : undefined;
  const common = { name, kind: first.kindIn(path), holder };
  if (split && isShared(path, first)) return { ...common, waiters: split.waiterCount };
  const all = split ? split.waiterCount + split.holderCount : count;
  return { ...common, waiters: all - Math.min(all, queue.holders ?? 1) };
}

/** The queues whose keys all matter, by their paths: the keys that count in several nested ones are read once. */
async function splitAll(
  asking: Asking,
  listed: readonly ListedQueue[],
  revision: bigint,
): Promise<ReadonlyMap<string, BoardQueue>> {
  const { options, clock } = asking.services;
  const split = new Map<string, BoardQueue>();
  const paths = listed.filter(({ needsAll }) => needsAll).map(({ path }) => path);
  const wanted = new Set(paths);
  let outer: string | undefined;
  for (const path of paths.sort(byStart)) {
    if (outer !== undefined && path.startsWith(prefixOf(outer))) continue;
    outer = path;
    const keep = (kv: KeyValue): SeenEntry => new SeenEntry(kv, false);
    const read = await readKeys(asking, { revision, keysOnly: true, ...queueRange(path) }, { keep });
    const keys = new Map([...read.keys].map(([key, entry]) => [key, [undefined, entry]] as const));
    // Only its value shows of a writer that it reads.
    for (const { first } of listed) {
      const key = first?.bytes.toString("latin1") ?? "";
      if (first?.downgraded && keys.has(key)) keys.set(key, [undefined, first]);
    }
    const queues = new Queues(path, options.prefix);
    await inSlices(queues.apply({ revision, isRead: true, at: undefined, keys }), clock);
    for (const [each, queue] of queues.live) if (wanted.has(each)) split.set(each, queue);
  }
  return split;
}

/** A name, and then those that nest in it. */
const byStart = (a: string, b: string): number => (prefixOf(a) < prefixOf(b) ? -1 : 1);
