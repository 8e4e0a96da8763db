import type { Contender } from "../contender.js";
import type { Txn } from "../etcd/port.js";
import { prefixOf } from "../keys.js";
import { checkName, checkWait, rangeError, typeError } from "../options/check.js";
import type { Cluster } from "../session/cluster.js";
import { servicesOf } from "../session/connection.js";
import type { WaitOptions } from "../session/session-options.js";
import { ask } from "./ask.js";
import { exactKey } from "./state.js";

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
