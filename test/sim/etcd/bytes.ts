/**
 * Keys as strings with one character per byte ("binary" strings): JavaScript compares them as etcd compares bytes, which
 * UTF-16 strings do not guarantee, and they are keys of a Map.
 */

const ASCII = /^[\0-\x7f]*$/;

export function bytesOf(key: string | Buffer): string {
  if (typeof key !== "string") return key.toString("latin1");
  return ASCII.test(key) ? key : Buffer.from(key).toString("latin1");
}

/** The characters that etcd returns for text: an unpaired surrogate becomes U+FFFD on its way. */
export const textOf = (value: string): string => (ASCII.test(value) ? value : Buffer.from(value).toString());

/** The first byte string that is not before `key`; all of `sorted` are in order. */
export function lowerBound<Item>(
  sorted: readonly Item[],
  key: string,
  nameOf: (item: Item) => string,
): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (nameOf(sorted[middle]!) < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A range of keys. */
export interface Interval {
  readonly key: string;
  /** `undefined`: the key alone. `""`: everything from the key on. */
  readonly end: string | undefined;
}

/**
 * Decodes a range: no end means one key, and "\0" everything from the key on. `emptyEnd` is what an empty end means; default:
 * none.
 */
export function intervalOf(key: string | Buffer, end: string | Buffer | undefined, emptyEnd?: ""): Interval {
  if (end === undefined) return { key: bytesOf(key), end };
  const limit = bytesOf(end);
  if (limit === "") return { key: bytesOf(key), end: emptyEnd };
  return { key: bytesOf(key), end: limit === "\0" ? "" : limit };
}

export function contains({ key, end }: Interval, name: string): boolean {
  if (end === undefined) return name === key;
  return name >= key && (end === "" || name < end);
}
