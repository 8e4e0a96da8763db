import { jsonOf } from "../base-error.js";

const TO_JSON: PropertyDescriptor & ThisType<object> = {
  value(): Record<string, unknown> {
    return Object.fromEntries(Object.entries(this).map(([field, value]) => [field, jsonOf(value)]));
  },
};

/**
 * The same message, which can be written as JSON: bigints become decimal strings, as in locks and errors. Its `toJSON` is not
 * enumerable, so that logs and comparisons show only the data.
 */
export const withJson = <M extends object>(message: M): M =>
  Object.defineProperty(message, "toJSON", TO_JSON);
