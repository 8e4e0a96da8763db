import { isUtf8 } from "node:buffer";
import type { Contender } from "../contender.js";
import type { KeyValue, Range } from "../etcd/port.js";
import { delayedBy, pathOf, prefixOf } from "../keys.js";
import { checkName, checkOptions, checkPrefix, checkWait, rangeError, typeError } from "../options/check.js";
import {
  after,
  type Asking,
  atOneRevision,
  entryBeside,
  readKeys,
  readPages,
  revisionIsGone,
} from "../queue/contenders.js";
import { queueRange, type RangeResult } from "../queue/lock-mode.js";
import { type QueueKind, SeenEntry, type Split, splitQueue } from "../queue/seen-entry.js";
import { type Cluster, servicesOf } from "../session/cluster.js";
import type { WaitOptions } from "../session/session-options.js";
import { ask, checkLimit } from "./inspect.js";

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
  const delayed = new Set<string>();
  const revisions = new Map<string, bigint>();
  let { key, above } = from ?? { key: first, above: [] };
  let [revision, more, requests] = [0n, true, 0];
  const range = { revision: from?.revision, keysOnly: true, key, end };
  const size = (n: number): number => Math.min(MAX_KEYS, Math.max(FIRST_KEYS, limit + 1) << n);
  for await (const page of readPages(asking, range, size)) {
    ({ revision, more } = page);
    for (const kv of page.kvs) {
      const path = pathIn(kv.key, asking.services.options.prefix);
      const upper =
        path === undefined ? above : above.filter((other) => prefixOf(path).startsWith(prefixOf(other)));
      if (path?.startsWith(prefix) && upper.at(-1) !== path) {
        // This name begins the next page.
        if (paths.length === limit) return { paths, delayed, revision, next: { revision, key, above } };
        paths.push(path);
        above = [...upper, path];
      } else above = upper;
      const text = kv.key.toString("latin1");
      const entry = delayedBy(text);
      if (entry !== undefined && revisions.get(entry) === kv.createRevision)
        for (const each of above) delayed.add(each);
      revisions.set(text, kv.createRevision);
      key = after(kv.key);
    }
    if (++requests === MAX_REQUESTS) break;
  }
  return { paths, delayed, revision, next: more ? { revision, key, above } : undefined };
}

const SLASH = 0x2f;
const FOLDER = /\/(read|write)$/;

/** The path of the queue that a key belongs to directly; undefined if no queue can have it. `prefix`: of the cluster. */
export function pathIn(key: Buffer, prefix: string): string | undefined {
  const directory = key.subarray(0, Math.max(0, key.lastIndexOf(SLASH)));
  if (!isUtf8(directory)) return undefined;
  // The readers of `a` have their keys where a mutex `a/read` would have them.
  const name = directory.toString().slice(prefix.length).replace(FOLDER, "");
  try {
    return `${prefix}${checkName(name)}`;
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
  const { paths, revision } = page;
  const locks: LockSummary[] = [];
  for (let n = 0; n < paths.length; n += MAX_NAMES) {
    const batch = paths.slice(n, n + MAX_NAMES);
    const oldest = batch.map((path): Range => ({
      ...{ order: "oldest first", limit: 1, revision },
      ...queueRange(path),
    }));
    const { ranges } = await asking.services.client.ranges(oldest, asking.policy);
    const summaries = batch.map((path, i) =>
      summaryOf(asking, { path, revision, isDelayed: page.delayed.has(path), ...ranges[i] }),
    );
    locks.push(...(await Promise.all(summaries)));
  }
  return { page, locks };
}

/** Its oldest entry, and how many it has; without them, it has none. */
interface ListedQueue extends Partial<Pick<RangeResult, "kvs" | "count">> {
  readonly path: string;
  readonly revision: bigint;
  /** It has delay keys, which are no contenders. */
  readonly isDelayed: boolean;
}

async function summaryOf(asking: Asking, queue: ListedQueue): Promise<LockSummary> {
  const { path, isDelayed, kvs: [kv] = [], count = 0 } = queue;
  const name = path.slice(asking.services.options.prefix.length);
  if (!kv) return { name, kind: "unknown", holder: undefined, waiters: count };
  const first = new SeenEntry(isDelayed ? await entryBeside(asking, kv, queue.revision) : kv);
  const holder = first.contenderIn(name, "holding");
  const kind = first.kindIn(path);
  // Only behind readers do the other keys decide who holds.
  const areReaders = count > 1 && first.placeIn(path) === "reader";
  if (!areReaders && !isDelayed)
    return { name, kind, holder, waiters: count - Math.min(count, first.permits ?? 1) };
  return { name, kind, holder, waiters: (await splitOf(asking, queue)).waiters.length };
}

async function splitOf(asking: Asking, { path, revision }: ListedQueue): Promise<Split> {
  const keep = (kv: KeyValue): SeenEntry => new SeenEntry(kv, false);
  const range = { revision, keysOnly: true, ...queueRange(path) };
  const { keys } = await readKeys(asking, range, { keep });
  return splitQueue(path, [...keys.values()]);
}
