import { printable } from "../printable.js";

/** `util.inspect`, and so `console.log`, calls a method of this name. */
export const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** What Node.js passes to that method. */
export type InspectArguments = readonly [
  depth: number,
  options: { stylize?(text: string, style: string): string },
  inspect?: (value: unknown, options: object) => string,
];

/** `Session { leaseId: 41n, owner: 'web-3' }`. Fields that are undefined are left out. */
export function inspected(
  name: string,
  read: () => object,
  [depth, options, inspect]: InspectArguments,
): string {
  if (depth < 0 || inspect === undefined) return options.stylize?.(`[${name}]`, "special") ?? `[${name}]`;
  const known = Object.entries(fieldsOf(read) as Readonly<Record<string, unknown>>).filter(
    ([, value]) => value !== undefined,
  );
  const shown = known.map(([field, value]) => [field, shownAs(value)] as const);
  return `${name} ${inspect(Object.fromEntries(shown), options)}`;
}

/** An object that only inherits from the class has no fields: printing it must not throw. */
function fieldsOf(read: () => object): object {
  try {
    return read();
  } catch {
    return {};
  }
}

function shownAs(value: unknown): unknown {
  if (typeof value === "number") return Math.round(value);
  return typeof value === "string" ? printable(value) : value;
}
