import { checkInteger, checkName, checkOptions, checkWait } from "../options/check.js";
import { remainingTtls } from "../queue/contenders.js";
import type { Cluster } from "../session/cluster.js";
import type { WaitOptions } from "../session/session-options.js";
import { ask, atOneRevision, type Asking } from "./ask.js";
import { splitQueue } from "./holders.js";
import { readKeys, readValues, type QueueKeys } from "./read-queue.js";
import { reported, stateOf, type QueueState } from "./state.js";

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
