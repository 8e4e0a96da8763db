import type { Contender } from "../contender.js";
import type { Txn } from "../etcd/port.js";
import type { CallPolicy } from "../etcd/retry.js";
import { prefixOf } from "../keys.js";
import {
  checkInteger,
  checkName,
  checkOptions,
  checkSignal,
  checkWait,
  rangeError,
  typeError,
} from "../options/check.js";
import { remainingTtls } from "../queue/contenders.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Cluster } from "../session/cluster.js";
import { type EtcdServices, servicesOf } from "../session/connection.js";
import type { WaitOptions } from "../session/session-options.js";
import {
  entryOf,
  exactKey,
  type InspectedKey,
  type QueueState,
  reported,
  splitQueue,
  stateOf,
} from "./entry.js";
import { Feed, type QueueListener, type QueueSnapshot, QueueWatch } from "./queue-watch.js";
import {
  ask,
  type Asking,
  atOneRevision,
  type QueueKeys,
  readEntries,
  readKeys,
  readValues,
} from "./read-queue.js";

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

/**
 * Returns who holds the lock or leads the election of this name, and who waits, in the order of the queue: one state of
 * etcd, by linearizable reads. It needs no session, and no permission but to read the keys under `name/`. Every key
 * there counts, because locks wait for it, whoever has put it: entries of Go's client, etcdctl and jetcd have no `owner`.
 * `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's own reason.
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

async function stateNow(asking: Asking, name: string, limit: number): Promise<QueueState> {
  const { revision, entries } = await atOneRevision(() => readReported(asking, name, limit));
  const split = splitQueue(entries);
  const { holders, waiters } = reported(split, limit);
  const leaseIds = [...holders, ...waiters].map(({ facts }) => facts.leaseId);
  const ttls = await remainingTtls(asking.services, leaseIds, asking.policy);
  const { prefix } = asking.services.options;
  return stateOf({ name, prefix, revision, split, limit, ttls });
}

/** All keys, and the values of those that decide who holds and of those that are reported. */
async function readReported(asking: Asking, name: string, limit: number): Promise<QueueKeys> {
  const keys = await readKeys(asking, name);
  const first = await readValues(asking, keys, keys.entries.slice(0, limit));
  const permits = first.entries[0]?.facts.permits ?? 1;
  const deciding = await readValues(asking, first, first.entries.slice(0, permits));
  const { holders, waiters } = reported(splitQueue(deciding.entries), limit);
  return readValues(asking, deciding, [...holders, ...waiters]);
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
  const { prefix } = servicesOf(cluster).options;
  checkContender(contender, prefix);
  const wait = checkWait("forceRelease", options);
  const { name } = contender;
  return ask(cluster, { what: `release "${name}" by force`, wait }, async ({ services, policy }) => {
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const { succeeded } = await services.client.txn(deletion(contender, prefix), { ...policy, onUnanswered });
    return succeeded || doubted ? contender : undefined;
  });
}

function deletion(contender: Contender, prefix: string): Txn {
  const key = exactKey(contender, prefix);
  return {
    queues: [contender.name],
    compare: [{ kind: "created at", key, revision: contender.revision }],
    success: [{ kind: "delete", key }],
    failure: [],
  };
}

function checkContender(value: unknown, prefix: string): asserts value is Contender {
  if (typeof value !== "object" || value === null) throw typeError("contender", "a Contender", value);
  const { name, key, revision } = value as Partial<Contender>;
  const directory = `${prefix}${prefixOf(checkName(name, "contender.name"))}`;
  if (typeof key !== "string") throw typeError("contender.key", "a string", key);
  if (!key.startsWith(directory)) throw rangeError("contender.key", `a key under ${directory}`, key);
  if (typeof revision !== "bigint") throw typeError("contender.revision", "a bigint", revision);
  if (revision < 1n) throw rangeError("contender.revision", "1 or more", revision);
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
  const { prefix } = services.options;
  return new Feed<QueueState>({
    services,
    signal: checkSignal(signal),
    maxUnread: 1,
    same: () => false,
    start: ({ item, failed }) => {
      const changed = ({ revision, keys }: QueueSnapshot<InspectedKey>): void =>
        item(stateOf({ name, prefix, revision, split: splitQueue([...keys.values()]), limit }));
      return watch(services, name, { changed, failed });
    },
  });
}

const watch = (
  services: EtcdServices,
  name: string,
  listener: QueueListener<InspectedKey>,
): QueueWatch<InspectedKey> =>
  new QueueWatch(
    {
      ...{ services, range: queueRange(name), what: `watch the queue of "${name}"` },
      keep: (kv) => entryOf(name, kv),
      read: (policy) => snapshot(services, name, policy),
    },
    listener,
  );

async function snapshot(
  services: EtcdServices,
  name: string,
  policy: CallPolicy,
): Promise<QueueSnapshot<InspectedKey>> {
  const { revision, entries } = await atOneRevision(() => readEntries({ services, policy }, name));
  const latin1 = ({ key }: InspectedKey): string => Buffer.from(key).toString("latin1");
  return { revision, keys: new Map(entries.map((entry) => [latin1(entry), entry])) };
}
