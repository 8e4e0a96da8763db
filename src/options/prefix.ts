import { isWellFormed, rangeError, typeError } from "./check.js";

/** In bytes. A name has at most 1024, so no key is longer than both and the ID of a lease. */
const MAX_BYTES = 256;

/** The `prefix` of `connect`; "" if it is not set. */
export function checkKeyPrefix(value: unknown): string {
  const rule = 'a string that ends with "/"';
  if (value === undefined) return "";
  if (typeof value !== "string") throw typeError("prefix", rule, value);
  // With "prod" the keys of "jobs" would begin with "prodjobs", as those of "uctjobs" do with "prod" + "uctjobs".
  if (!value.endsWith("/")) throw rangeError("prefix", rule, value);
  if (value.includes("//")) throw rangeError("prefix", 'free of "//"', value);
  // A queue there would contain the marks of all clusters.
  if (value.startsWith("/leasehold/")) throw rangeError("prefix", 'outside of "/leasehold/"', value);
  if (Buffer.byteLength(value) > MAX_BYTES || !isWellFormed(value))
    throw rangeError("prefix", `at most ${MAX_BYTES} bytes of well-formed Unicode`, value);
  return value;
}
