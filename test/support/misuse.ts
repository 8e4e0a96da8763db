import { expect } from "vitest";
import { inspect } from "node:util";

/** A value that breaks the rule of an option: the error's class, and what its message says. */
export interface Misuse {
  readonly option: string;
  readonly value: unknown;
  readonly error: typeof TypeError | typeof RangeError;
  /** Words of the rule. */
  readonly rule: string;
  /** The value as the message shows it. */
  readonly got: string;
}

const misuse =
  (error: typeof TypeError | typeof RangeError) =>
  (
    option: string,
    rule: string,
    value: unknown,
    got = typeof value === "bigint" ? `${value}n` : String(value),
  ): Misuse => ({
    option,
    value,
    error,
    rule,
    got,
  });

export const wrongType = misuse(TypeError);
export const outOfRange = misuse(RangeError);

export const titled = (cases: readonly Misuse[]) =>
  cases.map(
    (each) =>
      [
        `${each.option}: ${inspect(each.value, { depth: 1, breakLength: Infinity })}`.slice(0, 90),
        each,
      ] as const,
  );

export function expectMisuse(error: unknown, { option, error: kind, rule, got }: Misuse): void {
  expect(error).toBeInstanceOf(kind);
  const { message } = error as Error;
  expect(message).toContain(option);
  expect(message).toContain(rule);
  expect(message).toContain(`got ${got}`);
}

/** What `run` throws; fails when it throws nothing. */
export function thrown(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

/** What the promise of `run` rejects with; fails when `run` throws instead, or does not reject. */
export async function rejection(run: () => Promise<unknown>): Promise<unknown> {
  const promise = run();
  expect(promise).toBeInstanceOf(Promise);
  return promise.then(
    () => Promise.reject(new Error("nothing was rejected")),
    (reason: unknown) => reason,
  );
}

const TIMER_RULE = "a number of milliseconds from 1 to 2147483647";
const SIGNAL_RULE = "an AbortSignal";

/** `signal` and `timeoutMs` of every function that waits. */
export const BAD_WAITS: readonly Misuse[] = [
  ...[0, -1, 0.5, NaN, Infinity, 2 ** 31].map((value) => outOfRange("timeoutMs", TIMER_RULE, value)),
  wrongType("timeoutMs", TIMER_RULE, "100", '"100"'),
  wrongType("timeoutMs", TIMER_RULE, null),
  wrongType("timeoutMs", TIMER_RULE, 5n),
  wrongType("timeoutMs", TIMER_RULE, new Date(0), "an object (Date)"),
  wrongType("signal", SIGNAL_RULE, null),
  wrongType("signal", SIGNAL_RULE, true),
  wrongType("signal", SIGNAL_RULE, new AbortController(), "an object (AbortController)"),
  wrongType("signal", SIGNAL_RULE, {}, "an object (Object)"),
];

const TTL_RULE = "a whole number from 2 to 86400";
const OWNER_RULE = "string of at most 256 bytes";

export const BAD_OWNERS: readonly Misuse[] = [
  wrongType("owner", OWNER_RULE, 7),
  wrongType("owner", OWNER_RULE, null),
  outOfRange("owner", OWNER_RULE, "x".repeat(257), `"${"x".repeat(60)}…"`),
  outOfRange("owner", OWNER_RULE, "é".repeat(129), `"${"é".repeat(60)}…"`),
  outOfRange("owner", OWNER_RULE, "\ud800", '"\\ud800"'),
];

export const BAD_SESSIONS: readonly Misuse[] = [
  ...[0, 1, -5, 2.5, 86_401, NaN, Infinity].map((value) => outOfRange("ttlSeconds", TTL_RULE, value)),
  wrongType("ttlSeconds", TTL_RULE, "15", '"15"'),
  wrongType("ttlSeconds", TTL_RULE, 15n),
  wrongType("ttlSeconds", TTL_RULE, null),
  ...BAD_OWNERS,
];

/** What is no options object at all, by how a message shows it. */
export const NO_OBJECTS: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ["null", null],
  ["5000", 5000],
  ['"5s"', "5s"],
  ["true", true],
  ["an array", []],
  ["a function", () => {}],
]);
