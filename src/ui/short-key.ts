/** In UTF-16 code units. The keys of this library have at most 1,400 bytes; another client's can be as long as a request. */
export const MAX_KEY = 2048;

/** A key as the page shows it. It then ends with "…" if it is longer than the key of any lock. */
export function shortKey(key: string): string {
  if (key.length <= MAX_KEY) return key;
  // A part of a longer string would keep all of it in memory.
  return `${Buffer.from(key.slice(0, MAX_KEY), "utf16le").toString("utf16le")}…`;
}
