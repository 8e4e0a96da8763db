import { type Cluster, type Contender, inspect, type QueueState } from "../../index.js";
import { CliError, EXIT, usageError } from "../command-line/exit.js";

/** As many as the library reports. */
const LIMIT = 1000;

/** What the user's word means: the holder of a name, or the entry of a key. */
export interface Found {
  readonly queue: QueueState;
  readonly entry: Contender;
}

/** How the word is read; undefined: as what it is, if it is only one of them. */
export type Reading = "name" | "key" | undefined;

/** @throws {CliError} if it is both, or if several hold. */
export async function findEntry(
  cluster: Cluster,
  word: string,
  { reading, signal }: { readonly reading: Reading; readonly signal: AbortSignal },
): Promise<Found | undefined> {
  const options = { limit: LIMIT, signal };
  const queueName = reading === "name" ? undefined : nameOfKey(word);
  // A word that can be neither is inspected as a name: the library says which rule it breaks.
  const mayBeName = reading !== "key" && (queueName === undefined || isName(word));
  const [named, around] = await Promise.all([
    mayBeName ? inspect(cluster, word, options) : undefined,
    queueName !== undefined ? inspect(cluster, queueName, options) : undefined,
  ]);
  const byName = named?.holders[0];
  const byKey = around && entryOf(around, word);
  if (byName && byKey)
    throw usageError(
      `${JSON.stringify(word)} is the name of a lock and the key of an entry: give --as name or --as key`,
      "release",
    );
  if (named && byName) return { queue: named, entry: onlyHolder(named, byName) };
  return around && byKey ? { queue: around, entry: byKey } : undefined;
}

function onlyHolder({ name, total }: QueueState, holder: Contender): Contender {
  if (total.holders === 1) return holder;
  throw new CliError(
    EXIT.usage,
    `${total.holders} hold ${JSON.stringify(name)}: give the key of one of them`,
    "leasehold show has the keys",
  );
}

/** By its key: the same text may stand for two keys that are no text. */
function entryOf({ holders, waiters }: QueueState, key: string): Contender | undefined {
  const [entry, ...others] = [...holders, ...waiters].filter((contender) => contender.key === key);
  if (others.length > 0)
    throw usageError(`${others.length + 1} keys look like ${JSON.stringify(key)}: give the name`, "release");
  return entry;
}

/** The library's rule for names. A key may be longer, and have empty parts. */
const isName = (word: string): boolean => !/^\/|\/$|\/\//.test(word) && Buffer.byteLength(word) <= 1024;

/** The queue of a key: readers and writers have folders of their own, and junk keys may have empty parts. */
function nameOfKey(key: string): string | undefined {
  const folder = key.slice(0, Math.max(0, key.lastIndexOf("/")));
  const name = folder
    .replace(/\/\/.*$/s, "")
    .replace(/\/+$/, "")
    .replace(/\/(read|write)$/, "");
  return name === "" || name.startsWith("/") ? undefined : name;
}
