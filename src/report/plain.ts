/** Frozen data. Bigints become decimal strings in JSON; `toJSON` is not enumerable, so logs show only the data. */
export function plain<T extends object>(data: T): Readonly<T> {
  const toJSON = (): Record<string, unknown> =>
    Object.fromEntries(Object.entries(data).map(([field, value]) => [field, jsonOf(value)]));
  return Object.freeze(Object.defineProperty(data, "toJSON", { value: toJSON }));
}

const jsonOf = (value: unknown): unknown => (typeof value === "bigint" ? value.toString() : value);
