import { isUtf8 } from "node:buffer";
import type { KeyValue } from "../etcd/port.js";
import { prefixOf } from "../keys.js";
import { checkName } from "../options/check.js";
import type { Asking } from "./ask.js";
import type { Position } from "./cursor.js";
import { after } from "./read-queue.js";

/** A part of the names under a prefix. */
export interface NamesPage {
  readonly names: readonly string[];
  /** Where the next page begins; undefined after the last name. */
  readonly next: Position | undefined;
  readonly revision: bigint;
}

/** Which names to find. */
export interface Search {
  readonly prefix: string;
  readonly limit: number;
  /** Default: the first name, at the present revision. */
  readonly from?: Pick<Position, "key" | "above"> & { readonly revision: bigint | undefined };
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
export async function findNames(
  { services, policy }: Asking,
  { prefix, limit, from }: Search,
): Promise<NamesPage> {
  const walk = new Walk(prefix, limit, from);
  const { end } = prefixRange(prefix);
  for (let n = 0; n < MAX_REQUESTS; n++) {
    const keys = Math.min(MAX_KEYS, Math.max(FIRST_KEYS, limit + 1) << n);
    const at = walk.revision === undefined ? {} : { revision: walk.revision };
    const range = { key: walk.key, end, limit: keys, keysOnly: true, ...at };
    const { header, kvs, more } = await services.client.range(range, policy);
    walk.revision ??= header.revision;
    if (walk.take(kvs) || !more) return walk.page(more);
  }
  return walk.page(true);
}

/** The position between two keys, and the names found before it. */
class Walk {
  revision: bigint | undefined;
  key: Buffer;
  readonly #names: string[] = [];
  #above: readonly string[];
  /** Keys of the last answer are behind `key`. */
  #full = false;

  constructor(
    private readonly prefix: string,
    private readonly limit: number,
    from: Search["from"],
  ) {
    this.revision = from?.revision;
    this.key = from?.key ?? prefixRange(prefix).key;
    this.#above = from?.above ?? [];
  }

  /** Whether the page is full: the next name begins the next page. */
  take(kvs: readonly KeyValue[]): boolean {
    for (const { key } of kvs) {
      const name = nameOf(key);
      const above = name === undefined ? [] : this.#above.filter((other) => isAtOrBelow(name, other));
      if (name?.startsWith(this.prefix) && above.at(-1) !== name) {
        this.#full = this.#names.length === this.limit;
        if (this.#full) return true;
        this.#names.push(name);
        above.push(name);
      }
      if (name !== undefined) this.#above = above;
      this.key = after(key);
    }
    return false;
  }

  page(more: boolean): NamesPage {
    const revision = this.revision ?? 0n;
    const next = this.#full || more ? { revision, key: this.key, above: this.#above } : undefined;
    return { names: this.#names, next, revision };
  }
}

const isAtOrBelow = (name: string, other: string): boolean =>
  name === other || name.startsWith(prefixOf(other));

const SLASH = 0x2f;
const FOLDER = /\/(read|write)$/;

/** The name of the queue that a key belongs to directly; undefined if no queue can have it. */
export function nameOf(key: Buffer): string | undefined {
  const directory = key.subarray(0, Math.max(0, key.lastIndexOf(SLASH)));
  if (!isUtf8(directory)) return undefined;
  // The readers of `a` have their keys where a mutex `a/read` would have them.
  const name = directory.toString().replace(FOLDER, "");
  try {
    return checkName(name);
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
