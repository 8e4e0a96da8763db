import fc from "fast-check";

/** Any value that a program may pass by mistake: from JSON, or one error away from a valid value. */
export const junk: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 4, arbitrary: fc.jsonValue({ maxDepth: 2 }) },
  fc.anything({
    maxDepth: 2,
    withBigInt: true,
    withBoxedValues: true,
    withDate: true,
    withMap: true,
    withNullPrototype: true,
    withObjectString: true,
    withSet: true,
    withSparseArray: true,
    withTypedArray: true,
  }),
  fc.constantFrom(
    undefined,
    null,
    NaN,
    Infinity,
    -0,
    0.5,
    2 ** 31,
    "",
    "100",
    5n,
    Symbol("s"),
    () => undefined,
  ),
  fc.double(),
  fc.bigInt(),
);

/** Options in which known and unknown names have junk or valid values. */
export function junkOptions(good: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<unknown> {
  const known = Object.fromEntries(
    Object.entries(good).map(([name, value]) => [name, fc.oneof(value, value, junk)]),
  );
  const unknown = fc.dictionary(fc.string({ maxLength: 8 }), junk, { maxKeys: 1 });
  const record = fc
    .tuple(
      fc.record(known, { requiredKeys: [] }),
      fc.oneof({ weight: 4, arbitrary: fc.constant({}) }, unknown),
    )
    .map(([options, more]) => ({ ...options, ...more }));
  return fc.oneof({ weight: 6, arbitrary: record }, junk);
}

const OPTIONS =
  /^(Expected (the options of [\w' .]+|hosts|credentials(\.\w+)?|auth(\.\w+)?|transport|pingIntervalMs|pingTimeoutMs|connectTimeoutMs|requestTimeoutMs|ttlSeconds|owner|signal|timeoutMs|reentrant|drainMs|atLeastMs|cluster|source|name|permits|work|leaseId|highest|fence|hold(\.\w+)?)\b|Unknown option .* of |Option \w+ (of connect is refused|has no effect with|cannot be used|needs) )/s;

/** Whether the error has the class for misuse, and names what was wrong. */
export const isMisuse = (error: unknown): boolean =>
  (error instanceof TypeError || error instanceof RangeError) && OPTIONS.test(error.message);
