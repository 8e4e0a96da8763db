import type { KeyValue } from "../etcd/port.js";
import { prefixOf } from "../keys.js";
import { rangeError } from "../options/check.js";
import type { WebLockMode } from "./arguments.js";

/** In UTF-16 code units. The key is eight thirds as long in bytes, and every read of a queue returns several. */
const MAX_NAME = 4096;
/** Stands for the empty name, whose base64url would leave nothing between two slashes. */
const EMPTY = "=";

/**
 * The queue name of a lock. The lock's name may be any string, even one that is not well-formed Unicode, so its UTF-16
 * code units (little-endian) are encoded as base64url. @throws RangeError
 */
export function queueNameOf(prefix: string, name: string): string {
  if (name.length > MAX_NAME) throw rangeError("name", `at most ${MAX_NAME} UTF-16 code units long`, name);
  return `${prefix}/${encoded(name)}`;
}

const encoded = (name: string): string =>
  name === "" ? EMPTY : Buffer.from(name, "utf16le").toString("base64url");

/** Of a name of `MAX_NAME` code units. */
const MAX_ENCODED = Math.ceil((MAX_NAME * 2 * 4) / 3);
/** In bytes: the folder, the lease and the number of an entry. */
const MAX_BELOW = 64;

function decoded(text: string): string | undefined {
  if (text === EMPTY) return "";
  if (text.length > MAX_ENCODED) return undefined;
  const name = Buffer.from(text, "base64url").toString("utf16le");
  // Otherwise the key is not that of a web lock.
  return name !== "" && encoded(name) === text ? name : undefined;
}

/** A key in the queue of a web lock. */
export interface WebLockEntry {
  readonly kv: KeyValue;
  readonly mode: WebLockMode;
  /** A key further below, which no lock has put there: requests wait for it, but it is neither listed nor deleted. */
  readonly foreign: boolean;
}

export const webLockEntryIn = (queueName: string, kv: KeyValue): WebLockEntry =>
  webLockEntryOf(kv, pathBelow(queueName, kv));

/** The same with the lock's name; undefined if the key is not in the queue of a lock. */
export function namedEntryOf(
  prefix: string,
  kv: KeyValue,
): (WebLockEntry & { readonly name: string }) | undefined {
  const [text = "", ...path] = pathBelow(prefix, kv);
  const name = decoded(text);
  return name === undefined || path.length === 0 ? undefined : { ...webLockEntryOf(kv, path), name };
}

/** Another client's key can be as long as a request, and all slashes: its end tells nothing more. */
const MAX_PARTS = 4;

function pathBelow(name: string, { key }: KeyValue): string[] {
  const start = Buffer.byteLength(prefixOf(name));
  const end = start + MAX_ENCODED + MAX_BELOW;
  const path = key.toString("utf8", start, end).split("/", MAX_PARTS);
  // It is too long for a key of a lock: as one that is further below.
  return key.length > end ? [...path, "", "", ""] : path;
}

/** The key of a mutex of the same name, which Go's client may have put there, counts as exclusive. */
function webLockEntryOf(kv: KeyValue, path: readonly string[]): WebLockEntry {
  const folder = path.length > 1 ? path[0] : undefined;
  const known = folder === "read" || folder === "write";
  return { kv, mode: folder === "read" ? "shared" : "exclusive", foreign: path.length > (known ? 2 : 1) };
}

/** Splits the entries of a queue, oldest first, into the holders (one exclusive, or all shared ones in front) and the waiters. */
export function heldAndPending<E extends Pick<WebLockEntry, "mode">>(
  entries: readonly E[],
): { readonly held: readonly E[]; readonly pending: readonly E[] } {
  const alone = entries.findIndex(({ mode }) => mode === "exclusive");
  const sharing = alone === -1 ? entries.length : alone;
  const holding = alone === 0 ? 1 : sharing;
  return { held: entries.slice(0, holding), pending: entries.slice(holding) };
}
