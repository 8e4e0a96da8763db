import { rangeError, typeError } from "../options/check.js";

/** Where the next page of a listing begins. */
export interface Position {
  /** Each page reads the state at this revision. */
  readonly revision: bigint;
  readonly key: Buffer;
  /** The names above this position that are listed already: each is a prefix of the next one, and of the key. */
  readonly above: readonly string[];
}

/** Changes with the meaning of the fields, so that a cursor of another version is not misread. */
const VERSION = 1;

/** Opaque to users. It contains what the pages before it have read, and no secret. */
export function cursorOf(prefix: string, { revision, key, above }: Position): string {
  const fields = [VERSION, prefix, revision.toString(), key.toString("base64"), above];
  return Buffer.from(JSON.stringify(fields)).toString("base64url");
}

/** @throws TypeError | RangeError */
export function positionOf(prefix: string, cursor: unknown): Position | undefined {
  if (cursor === undefined) return undefined;
  if (typeof cursor !== "string") throw typeError("cursor", RULE, cursor);
  const fields = fieldsOf(cursor);
  const position = fields && decoded(fields);
  if (!position || fields[1] !== prefix || !position.key.toString("latin1").startsWith(latin1(prefix)))
    throw rangeError("cursor", RULE, cursor);
  return position;
}

const RULE = "a cursor that list() has returned for the same prefix";

const latin1 = (text: string): string => Buffer.from(text).toString("latin1");

function fieldsOf(cursor: string): readonly unknown[] | undefined {
  try {
    const fields: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    return Array.isArray(fields) && fields[0] === VERSION ? fields : undefined;
  } catch {
    return undefined;
  }
}

function decoded([, , revision, key, above]: readonly unknown[]): Position | undefined {
  if (typeof revision !== "string" || !/^[1-9]\d{0,18}$/.test(revision)) return undefined;
  if (BigInt.asIntN(64, BigInt(revision)) !== BigInt(revision)) return undefined;
  if (typeof key !== "string" || !Array.isArray(above)) return undefined;
  const names: readonly unknown[] = above;
  if (!names.every((name) => typeof name === "string")) return undefined;
  return { revision: BigInt(revision), key: Buffer.from(key, "base64"), above: names };
}
