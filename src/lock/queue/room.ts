import { QueueFullError } from "../../errors.js";
import type { KeyValue } from "../../etcd/port.js";
import { keyText } from "../../etcd/watch.js";
import type { Admission, JoinWanted, ShownQueue } from "./join.js";
import { queueRange, type When, whenEmpty } from "./lock-mode.js";
import type { Queue } from "./queue.js";
import { SeenEntry, splitQueue } from "./seen-entry.js";
import { boundedTxn, countedTxn } from "./txns.js";

/** A call looks so often at a queue that others join meanwhile. */
const MAX_LOOKS = 20;

/**
 * The terms of a call with `maxWaiting`: fewer entries wait. etcd can't compare a count, so an attempt needs that no entry was put since it
 * was counted. While others join all the time, it would never get on: then it joins, and leaves if too many were before it.
 */
export function roomIn({ name, path }: Queue, { mode, maxWaiting }: JoinWanted): Admission | undefined {
  if (maxWaiting === undefined) return undefined;
  let when: When = whenEmpty;
  let looks = 0;
  const assertRoom = ({ kvs, before }: Pick<ShownQueue, "kvs" | "before">): void => {
    const waiting = waitingIn(path, kvs, mode.permits === undefined ? before : kvs);
    if (waiting >= maxWaiting) throw new QueueFullError(name, maxWaiting, waiting);
  };
  return {
    txn: (entry) => (looks > MAX_LOOKS ? countedTxn(entry) : boundedTxn(entry, when)),
    shown(queue) {
      assertRoom(queue);
      const { revision } = queue;
      when = () => [{ kind: "nothing since", ...queueRange(path), revision }];
      looks++;
    },
    put({ kvs, before }, { revision }) {
      const older = kvs.filter(({ createRevision }) => createRevision < revision);
      if (looks > MAX_LOOKS) assertRoom({ kvs: older, before });
    },
  };
}

/** How many of these entries wait. `read`: those of them that were read with their values. */
function waitingIn(path: string, kvs: readonly KeyValue[], read: readonly KeyValue[]): number {
  const values = new Map(read.map((kv) => [keyText(kv.key), kv]));
  const entries = kvs.map((kv) => {
    const withValue = values.get(keyText(kv.key));
    return new SeenEntry(withValue ?? kv, withValue !== undefined);
  });
  return splitQueue(path, entries).waiters.length;
}
