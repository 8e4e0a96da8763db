import { printable } from "./printable.js";

/** Each class has one code. Match on `code` (or with `instanceof`), never on the message. */
export type LeaseholdErrorCode =
  | "SESSION_LOST"
  | "SESSION_CLOSED"
  | "LOCK_LOST"
  | "LOCK_RELEASED"
  | "LOCK_TIMEOUT"
  | "LOCK_EXPIRING"
  | "STALE_FENCE"
  | "DEADLOCK"
  | "KIND_MISMATCH"
  | "ETCD_UNAVAILABLE"
  | "ETCD_REFUSED";

/** Every copy of leasehold in a process finds the same symbol. JSON and structured clones have no symbols. */
const BRAND = Symbol.for("leasehold.error");

/** An error that any copy of leasehold created. */
export const isBranded = (value: unknown): value is LeaseholdError =>
  typeof value === "object" && value !== null && BRAND in value;

const hasJson = (value: unknown): value is { toJSON(): unknown } =>
  typeof value === "object" && value !== null && "toJSON" in value && typeof value.toJSON === "function";

/** The value of a field in JSON: bigints become decimal strings, maps become objects. */
export function jsonOf(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Map) return Object.fromEntries([...value].map(([k, v]) => [String(k), jsonOf(v)]));
  if (value instanceof Error && !isBranded(value)) return { name: value.name, message: value.message };
  return hasJson(value) ? value.toJSON() : value;
}

/** The base class of every error that leasehold creates, except for misuse, which is a `TypeError` or `RangeError`. */
export abstract class LeaseholdError extends Error {
  abstract readonly code: LeaseholdErrorCode;

  static {
    Object.defineProperty(this.prototype, BRAND, { value: true });
  }

  /** The message is one line, whatever names it contains. Texts from other clients and from servers are limited in length. */
  constructor(message: string, options?: ErrorOptions) {
    super(printable(message, Infinity), options);
  }

  /** Each class of leasehold returns a literal, because minifiers shorten the names of classes. */
  override get name(): string {
    return this.constructor.name;
  }

  /** Name, code, message, the fields of the class, and the cause if there is one. Bigints become decimal strings. */
  toJSON(): Readonly<Record<string, unknown>> {
    const fields = Object.entries(this).map(([key, value]) => [key, jsonOf(value)] as const);
    // The errors of an AggregateError are among the fields.
    const none = this.cause === undefined || this.cause instanceof AggregateError;
    const cause = none ? {} : { cause: jsonOf(this.cause) };
    return { name: this.name, message: this.message, ...Object.fromEntries(fields), ...cause };
  }
}
