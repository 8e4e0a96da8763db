import { compactKey, keyText } from "../etcd/watch/watch.js";
import type { KeyValue } from "../etcd/port.js";
import { atOneRevision, type Asking } from "../inspect/ask.js";
import { factsOf } from "../inspect/entry.js";
import { byAge } from "../inspect/holders.js";
import { nameOf, prefixRange } from "../inspect/names.js";
import { readRange, VALUES } from "../inspect/read-queue.js";
import type { QueueSnapshot } from "../observe/queue-watch.js";
import type { BoardKey } from "./board-entry.js";

/** What a board has at most. A key takes about a kilobyte, and every 30 s all of them are read, to check the watch. */
export const MAX_KEYS = 20_000;

/** There are more keys under the prefix than a board has room for. */
export class TooManyKeysError extends Error {
  constructor(prefix: string) {
    super(`there are more than ${MAX_KEYS} keys under ${JSON.stringify(prefix)}: narrow the prefix`);
    this.name = "TooManyKeysError";
  }
}

export function boardKeyOf(prefix: string, kv: KeyValue): BoardKey {
  const { createRevision, modRevision } = kv;
  const name = nameOf(kv.key);
  return {
    ...{ key: compactKey(kv.key), createRevision, modRevision, value: factsOf(kv) },
    name: name?.startsWith(prefix) ? name : undefined,
  };
}

/** All keys under the prefix at one revision. @throws {TooManyKeysError} */
export function readBoard(asking: Asking, prefix: string): Promise<QueueSnapshot<BoardKey>> {
  return atOneRevision(async () => {
    const keys: BoardKey[] = [];
    const take = (kvs: readonly KeyValue[]): void => {
      for (const kv of kvs) keys.push(boardKeyOf(prefix, kv));
      if (keys.length > MAX_KEYS) throw new TooManyKeysError(prefix);
    };
    const revision = await readRange(asking, { ...prefixRange(prefix), ...VALUES }, { take });
    keys.sort(byAge);
    return { revision, keys: new Map(keys.map((key) => [keyText(key.key), key])) };
  });
}
