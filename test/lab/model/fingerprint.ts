import type { World } from "./world.js";

const words = new Map<string, number>();
/** Reused for every world: there are hundreds of thousands. */
const codes: number[] = [];

/** Numbers are small here, and there are few words: one character each. */
function encode(value: unknown): void {
  if (typeof value === "number") codes.push(value + 8);
  else if (typeof value === "string") codes.push(wordNumber(value));
  else if (value === undefined) codes.push(0);
  else if (typeof value === "boolean") codes.push(value ? 2 : 1);
  else if (Array.isArray(value)) {
    codes.push(3, value.length);
    for (const item of value) encode(item);
  } else encodeFields(value as Record<string, unknown>);
}

/** Where `codes` has revisions. */
const revisions: number[] = [];
const REVISIONS = new Set(["created", "deleted", "revision", "since", "createdAt", "position", "answer"]);

/** Records of one type are all created by the same few lines, so their fields have one order. */
function encodeFields(record: Record<string, unknown>): void {
  codes.push(4);
  for (const field in record) {
    if (field === "setup") continue;
    if (REVISIONS.has(field) && typeof record[field] === "number") revisions.push(codes.length);
    encode(record[field]);
  }
  codes.push(5);
}

function wordNumber(word: string): number {
  const known = words.get(word);
  if (known !== undefined) return known;
  words.set(word, words.size + 64);
  return words.size + 63;
}

/** Two worlds with one fingerprint have the same future. What never changes, or only describes a step, is left out. */
export function fingerprint(world: World): string {
  const { revision, lagging, keys, leases, sessions, callers, late, granted, written, left } = world;
  return printOf([revision, lagging, keys, leases, sessions, callers, late, granted, written, left]);
}

/** `isRelative`: only the order of the revisions matters, so that they are numbered anew. */
export function printOf(values: unknown, isRelative = false): string {
  codes.length = revisions.length = 0;
  encode(values);
  if (isRelative) renumber();
  return String.fromCharCode.apply(undefined, codes);
}

function renumber(): void {
  const used = [...new Set(revisions.map((i) => codes[i]!))].sort((a, b) => a - b);
  // 0 is none.
  const isNone = used[0] === 8;
  for (const i of revisions) codes[i] = used.indexOf(codes[i]!) + (isNone ? 8 : 9);
}
