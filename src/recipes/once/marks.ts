// The values of marks: what etcd keeps of a run.
import type { Compare, KeyValue, Operation } from "../../etcd/port.js";
import { ResultNotKeptError } from "../../errors.js";
import { isBytes, isError } from "../../base/util/realm.js";
import { printable } from "../../base/util/printable.js";

/** Where a mark or a floor is. */
export interface MarkKey {
  readonly key: string;
}

/** The value of a mark. */
export interface Mark {
  readonly state: "started" | "done" | "failed" | "missed";
  /** The owner of the session that ran it. */
  readonly owner: string;
  /** ISO 8601, by its clock: for people, never for a decision. */
  readonly since: string;
  /** The same, of its end. */
  readonly ended?: string;
  /** Identifies the call. */
  readonly id: string;
  /** The queue entry of the run. */
  readonly key: string;
  /** Create revision of that entry. Missing if one transaction put both: then it is the modification revision of the mark. */
  readonly fence?: string;
  /** SHA-256 of what the call was given as the fingerprint of its request. */
  readonly fingerprint?: string;
  readonly result?: Kept;
  readonly error?: OnceError;
}

/** What the work of a run has thrown. */
export interface OnceError {
  readonly name: string;
  /** Its `code`, if that is a string. */
  readonly code: string | undefined;
  /** At most 1000 characters. */
  readonly message: string;
}

/** Another run of a slot. */
export interface OnceRun {
  /** `owner` of the session that ran it. */
  readonly owner: string | undefined;
  /** When its call began, by its own clock. */
  readonly since: Date | undefined;
  /** When its work ended, by its own clock; undefined if it has not, or before version 0.1. */
  readonly ended: Date | undefined;
  /** Its work threw. */
  readonly failed: boolean;
  /** What its work threw, if it is known. */
  readonly error: OnceError | undefined;
}

/** A result as it is kept: JSON, or bytes in base64; neither for undefined. */
export interface Kept {
  readonly json?: unknown;
  readonly bytes?: string;
}

/** Bytes of UTF-8, or of a Uint8Array. */
export const MAX_RESULT = 65_536;
/** An owner has at most 256 bytes, a key 2,048, an error 2 KiB, and a result of bytes is longer in base64. */
export const MAX_MARK = 98_304;
/** Characters of the key of an entry. */
export const MAX_KEY = 2048;
/** So many arrays and objects of a result may be in each other: where values are copied, each takes a part of the stack. */
const MAX_DEPTH = 1000;
/** A result is in two objects of its mark. */
const MAX_MARK_DEPTH = MAX_DEPTH + 2;
const MAX_MESSAGE = 1000;
const MAX_NAME = 200;

/** @throws ResultNotKeptError if the value is too large or too deep, or has no JSON. */
export function keptOf(value: unknown, slot: string): Kept {
  if (value === undefined) return {};
  if (isBytes(value)) {
    if (value.byteLength > MAX_RESULT)
      throw new ResultNotKeptError(
        slot,
        `it has ${value.byteLength} bytes, and ${MAX_RESULT} are kept`,
        value,
      );
    return { bytes: Buffer.from(value).toString("base64") };
  }
  const text = jsonOf(value, slot);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_RESULT)
    throw new ResultNotKeptError(slot, `its JSON has ${bytes} bytes, and ${MAX_RESULT} are kept`, value);
  const depth = depthOf(text);
  if (depth > MAX_DEPTH)
    throw new ResultNotKeptError(
      slot,
      `its arrays and objects are nested ${depth} deep, and ${MAX_DEPTH} are kept`,
      value,
    );
  return { json: JSON.parse(text) as unknown };
}

function jsonOf(value: unknown, slot: string): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new ResultNotKeptError(slot, `it has no JSON: ${errorOf(error).message}`, value);
  }
  if (text === undefined) throw new ResultNotKeptError(slot, `a ${typeof value} has no JSON`, value);
  return text;
}

/** How many arrays and objects are in each other in a valid JSON. */
function depthOf(json: string): number {
  let [depth, deepest] = [0, 0];
  for (const [part] of json.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}]/g)) {
    if (part === "[" || part === "{") deepest = Math.max(deepest, ++depth);
    else if (part === "]" || part === "}") depth--;
  }
  return deepest;
}

/** Another object for each who gets it. */
export const copyOf = (kept: Kept): Kept => JSON.parse(JSON.stringify(kept)) as Kept;

/** The result of which this is kept. */
export function resultOf({ json, bytes }: Kept): unknown {
  return bytes === undefined ? json : new Uint8Array(Buffer.from(bytes, "base64"));
}

/** What a mark, and those who get it, see of anything that a work has thrown. */
export function errorOf(thrown: unknown): OnceError {
  try {
    return readError(thrown);
  } catch {
    // A getter or `toString` of what was thrown throws, too.
    return { name: "Error", code: undefined, message: "what was thrown cannot be read" };
  }
}

function readError(thrown: unknown): OnceError {
  if (!isError(thrown))
    return { name: "Error", code: undefined, message: printable(String(thrown), MAX_MESSAGE) };
  const { name, message } = thrown;
  const { code } = thrown as { readonly code?: unknown };
  return {
    name: printable(String(name), MAX_NAME),
    code: typeof code === "string" ? printable(code, MAX_NAME) : undefined,
    message: printable(String(message), MAX_MESSAGE),
  };
}

/** The condition that a mark still is as it was read: at this modification revision; `0n`: there is none. */
export const unchanged = (at: MarkKey, revision: bigint): Compare =>
  revision === 0n ? { kind: "created at", ...at, revision } : { kind: "modified at", ...at, revision };

/** `leaseId`: of one that outlives the process that puts it; 0n: none. */
export const putMark = (at: MarkKey, mark: Mark, leaseId: bigint): Operation => ({
  kind: "put",
  ...at,
  value: JSON.stringify(mark),
  leaseId,
});

/** Of a mark that was read, with its lease. A run without a fence gets that which its revision has told. */
export function putBack(at: MarkKey, { value, leaseId, modRevision }: KeyValue): Operation {
  const fields = objectIn(value);
  const lacksFence = fields?.["state"] === "started" && fields["fence"] === undefined;
  const whole = lacksFence && { ...fields, fence: String(modRevision) };
  return { kind: "put", ...at, value: whole ? JSON.stringify(whole) : value, leaseId };
}

/** The condition that the mark is this one. */
export const markIs = (at: MarkKey, mark: Mark): Compare => ({
  kind: "value is",
  ...at,
  value: JSON.stringify(mark),
});

const STATES: readonly unknown[] = ["started", "done", "failed", "missed"] satisfies Mark["state"][];
const TEXTS = ["owner", "since", "ended", "id", "key", "fence", "fingerprint"] as const;

/** The fields that have the form of ours; undefined if the value is no object, or longer or deeper than any of ours. */
export function parseMark({ value }: Pick<KeyValue, "value">): Partial<Mark> | undefined {
  const fields = objectIn(value);
  if (fields === undefined) return undefined;
  const texts = TEXTS.filter((name) => typeof fields[name] === "string").map((name) => [name, fields[name]]);
  const { state, result, error } = fields;
  return {
    ...Object.fromEntries(texts),
    ...(STATES.includes(state) && { state }),
    ...(isObject(result) && { result: parseKept(result) }),
    ...(isObject(error) && { error: parseError(error) }),
  } as Partial<Mark>;
}

type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields => typeof value === "object" && value !== null;

function objectIn(value: string): Fields | undefined {
  if (value.length > MAX_MARK) return undefined;
  try {
    const parsed: unknown = JSON.parse(value);
    return isObject(parsed) && depthOf(value) <= MAX_MARK_DEPTH ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function parseKept(result: Fields): Kept {
  const { bytes } = result;
  if (typeof bytes === "string") return { bytes };
  return "json" in result ? { json: result["json"] } : {};
}

function parseError({ name, code, message }: Fields): OnceError {
  const text = (value: unknown, limit: number): string =>
    printable(typeof value === "string" ? value : "", limit);
  return {
    name: text(name, MAX_NAME),
    code: typeof code === "string" ? text(code, MAX_NAME) : undefined,
    message: text(message, MAX_MESSAGE),
  };
}

/** What users see of the run that has put a mark. */
export function runOf(mark: Partial<Mark> | undefined): OnceRun {
  return {
    owner: mark?.owner,
    since: dateOf(mark?.since),
    ended: dateOf(mark?.ended),
    failed: mark?.state === "failed",
    error: mark?.error,
  };
}

function dateOf(text: string | undefined): Date | undefined {
  const date = new Date(text ?? NaN);
  return Number.isNaN(date.getTime()) ? undefined : date;
}
