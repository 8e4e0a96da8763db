import { inspect } from "node:util";

/** All that a log, a debugger or an error reporter could show of `value`: also what is not enumerable, and every cause. */
export function exposure(value: unknown): string {
  const seen = new Set<unknown>();
  const shown: string[] = [];
  const look = (each: unknown): void => {
    if (typeof each === "string") shown.push(each);
    if (typeof each !== "object" || each === null || seen.has(each)) return;
    seen.add(each);
    shown.push(
      inspect(each, { depth: Infinity, showHidden: true, getters: true, maxStringLength: Infinity }),
    );
    shown.push(jsonOf(each));
    if (each instanceof Error) shown.push(String(each), each.stack ?? "");
    if (each instanceof Map) for (const entry of each) look(entry);
    for (const key of Reflect.ownKeys(each)) look(Reflect.get(each, key));
  };
  look(value);
  return shown.join("\n");
}

/** What cannot be told as JSON is not told that way. */
function jsonOf(value: object): string {
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    return "";
  }
}

/** The lines of a PEM file that are worth hiding. */
export const linesOfPem = (pem: Uint8Array): string[] =>
  Buffer.from(pem)
    .toString()
    .split("\n")
    .filter((line) => line.length > 8 && !line.startsWith("-----"));
