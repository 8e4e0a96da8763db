import { isUtf8 } from "node:buffer";
import type { Contender } from "../contender.js";
import type { KeyValue, Range } from "../etcd/port.js";
import { prefixOf } from "../keys.js";
import { checkName, checkOptions, checkPrefix, checkWait, rangeError, typeError } from "../options/check.js";
import { queueRange, type RangeResult } from "../queue/lock-mode.js";
import type { Cluster } from "../session/cluster.js";
import type { WaitOptions } from "../session/session-options.js";
import { contenderAt, entryOf, type InspectedKey, kindOfQueue, type QueueKind, splitQueue } from "./entry.js";
import { checkLimit } from "./inspect.js";
import { after, ask, type Asking, atOneRevision, readKeys, revisionIsGone } from "./read-queue.js";

/** Where the next page of a listing begins. */
interface Position {
  /** Each page reads the state at this revision. */
  readonly revision: bigint;
  readonly key: Buffer;
  /** The names above this position that are listed already: each is a prefix of the next one, and of the key. */
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
  readonly names: readonly string[];
  /** Where the next page begins; undefined after the last name. */
  readonly next: Position | undefined;
  readonly revision: bigint;
}

/** Which names to find. */
interface Search {
  readonly prefix: string;
  readonly limit: number;
  /** Default: the first name, at the present revision. */
  readonly from?: Pick<Position, "key" | "above"> & { readonly revision: bigint | undefined };
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
async function findNames({ services, policy }: Asking, { prefix, limit, from }: Search): Promise<NamesPage> {
  const walk = new Walk(prefix, limit, from);
  const { end } = prefixRange(prefix);
  for (let n = 0; n < MAX_REQUESTS; n++) {
    const keys = Math.min(MAX_KEYS, Math.max(FIRST_KEYS, limit + 1) << n);
    const at = walk.revision === undefined ? {} : { revision: walk.revision };
    const range = { key: walk.key, end, limit: keys, keysOnly: true, ...at };
    const { header, kvs, more } = await services.client.range(range, policy);
    walk.revision ??= header.revision;
    if (walk.take(kvs) || !more) return walk.page(more);
  }
  return walk.page(true);
}

/** The position between two keys, and the names found before it. */
class Walk {
  revision: bigint | undefined;
  key: Buffer;
  readonly #names: string[] = [];
  #above: readonly string[];
  /** Keys of the last answer are behind `key`. */
  #full = false;

  constructor(
    private readonly prefix: string,
    private readonly limit: number,
    from: Search["from"],
  ) {
    this.revision = from?.revision;
    this.key = from?.key ?? prefixRange(prefix).key;
    this.#above = from?.above ?? [];
  }

  /** Whether the page is full: the next name begins the next page. */
  take(kvs: readonly KeyValue[]): boolean {
    for (const { key } of kvs) {
      const name = nameOf(key);
      const above = name === undefined ? [] : this.#above.filter((other) => isAtOrBelow(name, other));
      if (name?.startsWith(this.prefix) && above.at(-1) !== name) {
        this.#full = this.#names.length === this.limit;
        if (this.#full) return true;
        this.#names.push(name);
        above.push(name);
      }
      if (name !== undefined) this.#above = above;
      this.key = after(key);
    }
    return false;
  }

  page(more: boolean): NamesPage {
    const revision = this.revision ?? 0n;
    const next = this.#full || more ? { revision, key: this.key, above: this.#above } : undefined;
    return { names: this.#names, next, revision };
  }
}

const isAtOrBelow = (name: string, other: string): boolean =>
  name === other || name.startsWith(prefixOf(other));

const SLASH = 0x2f;
const FOLDER = /\/(read|write)$/;

/** The name of the queue that a key belongs to directly; undefined if no queue can have it. */
export function nameOf(key: Buffer): string | undefined {
  const directory = key.subarray(0, Math.max(0, key.lastIndexOf(SLASH)));
  if (!isUtf8(directory)) return undefined;
  // The readers of `a` have their keys where a mutex `a/read` would have them.
  const name = directory.toString().replace(FOLDER, "");
  try {
    return checkName(name);
  } catch {
    return undefined;
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
  /** The first of the holders. Its `ttlRemainingMs` is undefined: `inspect()` reads it. */
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
 * `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's own reason.
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
  const from = positionOf(prefix, cursor);
  const search: Search = { prefix, limit, ...(from && { from }) };
  return ask(cluster, { what: `list the locks under "${prefix}"`, wait }, (asking) => pageOf(asking, search));
}

async function pageOf(asking: Asking, search: Search): Promise<LockPage> {
  const { page, locks } = await readPage(asking, search).catch((error: unknown) => {
    if (!revisionIsGone(error)) throw error;
    return atOneRevision(() => readPage(asking, atPresent(search)));
  });
  const cursor = page.next && cursorOf(search.prefix, page.next);
  const found = { locks, cursor, revision: page.revision };
  const toJSON = (): Record<string, unknown> => ({ ...found, revision: found.revision.toString() });
  // Not enumerable, so that logs and comparisons show only the data.
  return Object.defineProperty(found, "toJSON", { value: toJSON }) as LockPage;
}

/** From the same key on, at the present revision. */
const atPresent = ({ from, ...search }: Search): Search =>
  from === undefined ? search : { ...search, from: { ...from, revision: undefined } };

async function readPage(
  asking: Asking,
  search: Search,
): Promise<{ readonly page: NamesPage; readonly locks: readonly LockSummary[] }> {
  const page = await findNames(asking, search);
  return { page, locks: await readSummaries(asking, page) };
}

/** Other clients may have written values of 1.5 MiB, and an answer has at most 256 MiB. */
const MAX_NAMES = 32;

/** The oldest entry of each queue, and etcd's count of all its keys. */
async function readSummaries(
  asking: Asking,
  { names, revision }: NamesPage,
): Promise<readonly LockSummary[]> {
  const locks: LockSummary[] = [];
  for (let n = 0; n < names.length; n += MAX_NAMES) {
    const batch = names.slice(n, n + MAX_NAMES);
    const oldest = batch.map((name): Range => ({
      ...queueRange(name),
      ...{ order: "oldest first", limit: 1, revision },
    }));
    const { ranges } = await asking.services.client.ranges(oldest, asking.policy);
    const queues = batch.map((name, i) => ({ name, revision, oldest: ranges[i] }));
    locks.push(...(await Promise.all(queues.map((queue) => summaryOf(asking, queue)))));
  }
  return locks;
}

interface ListedQueue {
  readonly name: string;
  readonly revision: bigint;
  readonly oldest: RangeResult | undefined;
}

async function summaryOf(asking: Asking, queue: ListedQueue): Promise<LockSummary> {
  const { name, oldest } = queue;
  const [kv] = oldest?.kvs ?? [];
  const first = kv && entryOf(name, kv);
  const holding = first ? await holdersOf(asking, queue, first) : 0;
  const { prefix } = asking.services.options;
  const holder = first && contenderAt(name, first, { prefix, state: "holding", ttlRemainingMs: undefined });
  const waiters = (oldest?.count ?? 0) - holding;
  return { name, kind: kindOfQueue(first ? [first] : []), holder, waiters };
}

/** How many hold if the oldest entry is `first`. Only behind readers do the other keys decide. */
async function holdersOf(
  asking: Asking,
  { name, revision, oldest }: ListedQueue,
  { place, facts }: InspectedKey,
): Promise<number> {
  const count = oldest?.count ?? 0;
  if (place !== "reader" || count === 1) return Math.min(count, facts.permits ?? 1);
  const { entries } = await readKeys(asking, name, revision);
  return splitQueue(entries).holders.length;
}
