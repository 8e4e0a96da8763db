import { type Contender, freeText, holdingText, permitsText, stateText } from "../contender.js";
import { EtcdUnavailableError } from "../errors.js";
import type { KeyValue, Operation, Txn } from "../etcd/port.js";
import { delayLeaseOf, entryKey, isDelayed, parseEntryKey, pathOf, prefixOf } from "../keys.js";
import {
  type CheckedWait,
  checkInteger,
  checkName,
  checkOptions,
  checkSignal,
  checkWait,
  rangeError,
  typeError,
} from "../base/options/check.js";
import {
  type Asking,
  atOneRevision,
  readKeys,
  remainingTtls,
  type Snapshot,
} from "../lock/queue/contenders.js";
import { queueRange } from "../lock/queue/lock-mode.js";
import {
  exactKey,
  kindOfQueue,
  type QueueKind,
  SeenEntry,
  type Split,
  splitQueue,
} from "../lock/queue/seen-entry.js";
import { type Cluster, servicesOf } from "../lock/session/cluster.js";
import { type EtcdServices } from "../lock/session/connection.js";
import type { WaitOptions } from "../lock/session/session-options.js";
import { printable } from "../base/util/printable.js";
import { settleWithin } from "../base/util/settle.js";
import { Intake, Queues } from "./board-queues.js";
import { Feed, QueueWatch } from "./queue-watch.js";

/** The `limit` of everything here. */
const LIMITS = { min: 1, max: 1000, fallback: 100 };

/** Checks the option `limit`, which `options` may have. */
export const checkLimit = (where: string, options: unknown, also: readonly string[]): number =>
  checkInteger("limit", checkOptions(where, options, ["limit", ...also])["limit"], LIMITS);

/** How many contenders a state shows. */
export interface LimitOption {
  /** At most so many holders and so many waiters are read in full and reported, 1..1000. `total` counts all. @default 100 */
  readonly limit?: number | undefined;
}

/** The queue of a name at one revision of etcd. `console.log` and JSON of it are safe to write. */
export interface QueueState {
  readonly name: string;
  /**
   * As far as keys and values show; "unknown" also for an empty queue. An election whose oldest candidate has an empty value shows as a
   * mutex, and a mutex named `a/read` or `a/write` as `a`. "members" is that of a group, at `name/members`: each member counts as a holder.
   */
  readonly kind: QueueKind;
  /** In the order of the queue, at most `limit` of them. A dead one in the place of a holder, which nobody holds yet, is among them. */
  readonly holders: readonly Contender[];
  /** The next one first, at most `limit` of them. */
  readonly waiters: readonly Contender[];
  /** How many there are, whatever `limit` is. */
  readonly total: { readonly holders: number; readonly waiters: number };
  /** The revision of etcd whose state this is. */
  readonly revision: bigint;
  /** Bigints become decimal strings, dates ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** What a state is made of. */
interface StateParts {
  readonly name: string;
  readonly path: string;
  readonly revision: bigint;
  /** All of them, or the first `limit` ones of each. */
  readonly split: Split;
  /** Default: those of `split`. */
  readonly total?: QueueState["total"];
  readonly limit: number;
  /** Milliseconds, by lease; undefined if they were not read. */
  readonly ttls?: ReadonlyMap<bigint, number>;
}

/** The first `limit` holders and the first `limit` waiters. */
const reported = ({ holders, waiters }: Split, limit: number): Split => ({
  holders: holders.slice(0, limit),
  waiters: waiters.slice(0, limit),
});

export function stateOf({ name, path, revision, split, limit, ttls, total }: StateParts): QueueState {
  const { holders, waiters } = reported(split, limit);
  const data: StateData = {
    name,
    kind: kindOfQueue(path, [...holders, ...waiters]),
    holders: holders.map((entry) => entry.contenderIn(name, "holding", ttls?.get(entry.leaseId))),
    waiters: waiters.map((entry) => entry.contenderIn(name, "waiting", ttls?.get(entry.leaseId))),
    total: total ?? { holders: split.holders.length, waiters: split.waiters.length },
    revision,
  };
  // Not enumerable, so that logs and comparisons show only the data.
  const toJSON = (): Record<string, unknown> => ({ ...data, revision: revision.toString() });
  Object.defineProperty(data, Symbol.for("nodejs.util.inspect.custom"), { value: () => textOf(data) });
  return Object.defineProperty(data, "toJSON", { value: toJSON }) as QueueState;
}

type StateData = Omit<QueueState, "toJSON">;

/** How many hold and wait; and how many of those that are reported are dead, who do neither. */
export function countsText({
  holders,
  waiters,
  total,
}: Pick<QueueState, "holders" | "waiters" | "total">): string {
  const [held, waited] = [deadIn(holders), deadIn(waiters)];
  const dead = held + waited > 0 ? `, ${held + waited} dead` : "";
  const permits = permitsText(holders, total.holders);
  const holding = `${holdingText(holders)}${permits === undefined ? "" : ` ${permits}`}`;
  return `${total.holders - held} ${holding}, ${total.waiters - waited} waiting${dead}`;
}

const deadIn = (contenders: readonly Contender[]): number =>
  contenders.filter(({ state }) => state === "dead").length;

/** What `util.inspect` shows, and so console.log: a line for the queue and one for each contender, without control characters. */
function textOf(data: StateData): string {
  const { name, kind, holders, waiters, total, revision } = data;
  const more = total.holders - holders.length + total.waiters - waiters.length;
  return [
    `QueueState "${printable(name, Infinity)}" (${kind}) at revision ${revision}: ${countsText(data)}`,
    ...[...holders, ...waiters].map((contender) => `  ${lineOf(contender)}`),
    ...(more > 0 ? [`  and ${more} more`] : []),
  ].join("\n");
}

function lineOf(contender: Contender): string {
  const { state, owner, reason, since, key, revision, leaseId, ttlRemainingMs } = contender;
  return [
    stateText(contender),
    owner === undefined ? printable(key) : `${printable(owner)}  ${printable(key)}`,
    ...(reason === undefined ? [] : [`because "${printable(reason)}"`]),
    `revision ${revision}`,
    `lease ${leaseId.toString(16)}`,
    ...(since === undefined ? [] : [`since ${since.toISOString()}`]),
    ...(ttlRemainingMs === undefined
      ? []
      : [state === "dead" ? freeText(ttlRemainingMs) : `${ttlRemainingMs / 1000} s left`]),
  ].join("  ");
}

/** Default `timeoutMs` of every call here. */
const TIMEOUT_MS = 5000;

/** How an error names the operation, and its limits. */
interface Question {
  readonly what: string;
  readonly wait: CheckedWait;
}

/**
 * Runs a call that needs no session. After its time limit, on abort and when the cluster is closed, it sends no further
 * request. @throws EtcdUnavailableError | EtcdRefusedError | SessionClosedError
 */
export const ask = <T>(
  cluster: object,
  question: Question,
  call: (asking: Asking) => Promise<T>,
): Promise<T> => askBy(servicesOf(cluster), question, call);

/** The same, without the cluster. */
export async function askBy<T>(
  services: EtcdServices,
  { what, wait }: Question,
  call: (asking: Asking) => Promise<T>,
): Promise<T> {
  const { aborts, closed, client } = services;
  closed.throwIfAborted();
  const { signal, timeoutMs = TIMEOUT_MS } = wait;
  signal?.throwIfAborted();
  const stop = new AbortController();
  const unlisten = aborts.add(closed, () => stop.abort(closed.reason));
  const limitIsGiven = wait.timeoutMs !== undefined;
  const policy = { what, giveUpMs: timeoutMs, limitIsGiven, signal: stop.signal };
  try {
    return await settleWithin(call({ services, policy }), { signal, timeoutMs }, services, {
      onTimeout: () => new EtcdUnavailableError(what, client.hosts.whyUnanswered(timeoutMs)),
      onGiveUp: () => stop.abort(),
    });
  } finally {
    unlisten();
  }
}

/**
 * Returns who holds the lock or leads the election of this name, and who waits, in the order of the queue: one state of
 * etcd, by linearizable reads. It needs no session, and no permission but to read the keys under `name/`. Every key
 * there counts, because locks wait for it, whoever has put it: entries of Go's client, etcdctl and jetcd have no `owner`.
 * Costs one request for each 1000 keys, each 32 values and each lease. `timeoutMs` defaults to 5000. On abort: rejects at once with the
 * signal's own reason.
 * @throws {EtcdUnavailableError} if etcd does not answer in time.
 * @throws {EtcdRefusedError} if etcd rejects a request.
 * @throws {SessionClosedError} if the cluster is closed.
 * @throws {TypeError | RangeError} on a bad name or bad options.
 */
export async function inspect(
  cluster: Cluster,
  name: string,
  options?: WaitOptions & LimitOption,
): Promise<QueueState> {
  checkName(name);
  const wait = checkWait("inspect", options, ["limit"]);
  const limit = checkLimit("inspect", options, ["signal", "timeoutMs"]);
  return ask(cluster, { what: `inspect "${name}"`, wait }, (asking) => stateNow(asking, name, limit));
}

/** All keys at one revision, and the values of those that decide who holds and of those that are reported. */
async function stateNow(asking: Asking, name: string, limit: number): Promise<QueueState> {
  const { services, policy } = asking;
  const keep = (kv: KeyValue): SeenEntry => new SeenEntry(kv, false);
  const path = pathOf(services, name);
  const range = { keysOnly: true, ...queueRange(path) };
  const { revision, split } = await atOneRevision(async () => {
    const queue = await readKeys(asking, range, { keep });
    const [first] = await readValues(asking, queue, [...queue.keys.values()].slice(0, limit));
    const entries = await readValues(asking, queue, [...queue.keys.values()].slice(0, first?.reach ?? 1));
    const { holders, waiters } = reported(splitQueue(path, entries), limit);
    return {
      revision: queue.revision,
      split: splitQueue(path, await readValues(asking, queue, [...holders, ...waiters])),
    };
  });
  const { holders, waiters } = reported(split, limit);
  const leaseIds = [...holders, ...waiters].map(({ leaseId }) => leaseId);
  const ttls = await remainingTtls(services, leaseIds, policy);
  return stateOf({ name, path, revision, split, limit, ttls });
}

/** In one request: other clients may have written values of 1.5 MiB, and an answer has at most 256 MiB. */
const MAX_VALUES = 32;
/** Of their keys, or one key more: these may be as long, and etcd takes requests of 2 MiB at most. */
const MAX_KEY_BYTES = 256 * 1024;

/** All entries of the queue, now with the values of `wanted`. */
async function readValues(
  { services, policy }: Asking,
  { revision, keys }: Snapshot<SeenEntry>,
  wanted: readonly SeenEntry[],
): Promise<readonly SeenEntry[]> {
  const missing = wanted.filter(({ isRead }) => !isRead);
  for (const batch of batchesOf(missing.map(({ bytes }) => bytes))) {
    const ranges = batch.map((key) => ({ key, revision }));
    const answer = await services.client.ranges(ranges, policy);
    for (const { kvs } of answer.ranges)
      for (const kv of kvs) keys.set(kv.key.toString("latin1"), new SeenEntry(kv));
  }
  return [...keys.values()];
}

function* batchesOf(keys: readonly (string | Buffer)[]): Iterable<readonly (string | Buffer)[]> {
  let batch: (string | Buffer)[] = [];
  let bytes = 0;
  for (const key of keys) {
    batch.push(key);
    bytes += Buffer.byteLength(key);
    if (batch.length < MAX_VALUES && bytes < MAX_KEY_BYTES) continue;
    yield batch;
    [batch, bytes] = [[], 0];
  }
  if (batch.length > 0) yield batch;
}

/**
 * Deletes the key of a holder or a waiter, as `inspect`, `list` or a `LockTimeoutError` has reported it, and returns that
 * contender; undefined if its key was gone. It never deletes a later key of the same name, because the delete compares the
 * create revision. A holder of this library learns at once that it has lost the lock (`LockLostError`, "deleted") if
 * it has held it for more than a second, and otherwise with its release or after that second: until then it works
 * beside the next holder, whom only the fence protects. A waiter of this library joins the queue again, at its end.
 * If an attempt stayed unanswered and its repetition finds no key, the contender is returned too: the key is gone, and
 * this call may have deleted it. It needs permission to read and write the key. `timeoutMs` defaults to 5000. On abort: rejects at
 * once with the signal's own reason; the key may be deleted nevertheless.
 * @throws {EtcdUnavailableError} if etcd does not answer in time; the key may be deleted nevertheless.
 * @throws {EtcdRefusedError} if etcd rejects the request.
 * @throws {SessionClosedError} if the cluster is closed.
 * @throws {TypeError | RangeError} on bad arguments.
 */
export async function forceRelease(
  cluster: Cluster,
  contender: Contender,
  options?: WaitOptions,
): Promise<Contender | undefined> {
  const path = checkContender(servicesOf(cluster), contender);
  const wait = checkWait("forceRelease", options);
  const { name } = contender;
  return ask(cluster, { what: `release "${name}" by force`, wait }, async ({ services, policy }) => {
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const key = exactKey(contender);
    const deletion: Txn = {
      queues: [path],
      compare: [{ kind: "created at", key, revision: contender.revision }],
      success: [{ kind: "delete", key }, ...delayDeletion(contender)],
      failure: [],
    };
    const { succeeded } = await services.client.txn(deletion, { ...policy, onUnanswered });
    return succeeded || doubted ? contender : undefined;
  });
}

/** An entry is deleted with its delay key, which one transaction has put with it. Without one, this deletes nothing. */
function delayDeletion({ key, leaseId }: Contender): readonly Operation[] {
  const parsed = isDelayed(leaseId) ? parseEntryKey(key, leaseId) : undefined;
  if (!parsed) return [];
  return [{ kind: "delete", key: entryKey(parsed.name, delayLeaseOf(leaseId), parsed.n) }];
}

const MAX_REVISION = 2n ** 63n - 1n;

/** Returns the path of its queue. */
function checkContender(services: EtcdServices, value: unknown): string {
  if (typeof value !== "object" || value === null) throw typeError("contender", "a Contender", value);
  const { name, key, revision, leaseId } = value as Partial<Contender>;
  const path = pathOf(services, checkName(name, "contender.name"));
  const directory = prefixOf(path);
  if (typeof key !== "string") throw typeError("contender.key", "a string", key);
  if (!key.startsWith(directory)) throw rangeError("contender.key", `a key under ${directory}`, key);
  if (typeof revision !== "bigint") throw typeError("contender.revision", "a bigint", revision);
  // A client of etcd takes it modulo 2^64, and 0 is the revision of a key that is not there.
  if (revision < 1n || revision > MAX_REVISION)
    throw rangeError("contender.revision", "from 1n to 2n ** 63n - 1n", revision);
  if (typeof leaseId !== "bigint") throw typeError("contender.leaseId", "a bigint", leaseId);
  return path;
}

/** The options of `watchQueue()`. */
export interface WatchQueueOptions extends LimitOption {
  /** An abort ends the loop, which throws the signal's own reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Yields the present state of the queue, then its state after every revision that changed it, in order, with no gap between
 * the first read and the changes. Of several states that the consumer has not read yet, because it is slow or because they
 * arrived together, it gets the latest one only; the last state is never lost.
 * It starts with the first `next()`, needs no session, and continues through outages of etcd: the changes of an outage
 * follow after it. Changes that etcd has compacted, or lost in a restore, are collapsed into the latest state.
 * `ttlRemainingMs` of all contenders is undefined, because leases change without a revision: `inspect()` reads them.
 * Costs one request for each 100 keys, every 30 s one for each 1,000, and a watch.
 * Leave the loop to stop. On abort, or when the cluster is closed, the loop throws the reason.
 * @throws {EtcdRefusedError} from the loop, if etcd rejects a request.
 * @throws {TypeError | RangeError} at once, on a bad name or bad options.
 */
export function watchQueue(
  cluster: Cluster,
  name: string,
  options?: WatchQueueOptions,
): AsyncIterableIterator<QueueState> {
  checkName(name);
  const { signal } = checkOptions("watchQueue", options, ["signal", "limit"]);
  const limit = checkLimit("watchQueue", options, ["signal"]);
  const services = servicesOf(cluster);
  const path = pathOf(services, name);
  return new Feed<QueueState>({
    services,
    signal: checkSignal(signal),
    maxUnread: 1,
    same: () => false,
    start: ({ item, failed }) => {
      const queues = new Queues(path, services.options.prefix, path);
      const intake = new Intake(queues, services.clock, (_, revision) => {
        const queue = queues.live.get(path);
        const [holders, waiters] = [queue?.holdersUpTo(limit) ?? [], queue?.waitersUpTo(limit) ?? []];
        const total = { holders: queue?.holderCount ?? 0, waiters: queue?.waiterCount ?? 0 };
        item(stateOf({ name, path, revision, split: { holders, waiters }, total, limit }));
      });
      const watch = new QueueWatch(
        {
          services,
          range: queueRange(path),
          what: `watch the queue of "${name}"`,
          keep: (kv) => new SeenEntry(kv),
        },
        { changed: (change) => intake.add(change), failed },
      );
      const stop = (): void => {
        intake.stop();
        watch.stop();
      };
      return { stop };
    },
  });
}
