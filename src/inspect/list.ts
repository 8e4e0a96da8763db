import type { Contender } from "../contender.js";
import type { Range } from "../etcd/port.js";
import type { RangeResult } from "../queue/lock-mode.js";
import { queueRange } from "../queue/lock-mode.js";
import { checkOptions, checkPrefix, checkWait } from "../options/check.js";
import type { Cluster } from "../session/cluster.js";
import type { WaitOptions } from "../session/session-options.js";
import { ask, atOneRevision, revisionIsGone, type Asking } from "./ask.js";
import { cursorOf, positionOf } from "./cursor.js";
import { entryOf, type InspectedKey, type QueueKind } from "./entry.js";
import { kindOfQueue, splitQueue } from "./holders.js";
import { checkLimit } from "./inspect.js";
import { findNames, type NamesPage, type Search } from "./names.js";
import { readKeys } from "./read-queue.js";
import { contenderAt } from "./state.js";

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
