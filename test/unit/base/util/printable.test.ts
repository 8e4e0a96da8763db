import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  DeadlockError,
  EtcdRefusedError,
  EtcdUnavailableError,
  LockExpiringError,
  LockLostError,
  LockReleasedError,
  LockTimeoutError,
  type Contender,
} from "../../../../src/index.js";
import { printable } from "../../../../src/base/util/printable.js";
import { hostileNames } from "../../../support/fixtures/hostile-names.js";

/** Every character that can end a line, color a terminal or change the reading direction, by code and not by category. */
const DANGEROUS = new Set([
  ...Array.from({ length: 0x20 }, (_, code) => code),
  ...Array.from({ length: 0x21 }, (_, code) => 0x7f + code),
  ...[0x061c, 0x200b, 0x200e, 0x200f, 0x2028, 0x2029, 0xfeff],
  ...[0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069],
]);
const isSafe = (text: string) =>
  Buffer.from(text).toString() === text &&
  [...text].every((char) => !DANGEROUS.has(char.codePointAt(0) ?? 0));

const dangerous = fc.constantFrom(...DANGEROUS).map((code) => String.fromCodePoint(code));
/** Code units of any kind, including lone surrogates. */
const units = fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code));
const plain = fc.string({ unit: "grapheme-ascii", minLength: 1, maxLength: 20 });
const texts = fc
  .array(fc.oneof(plain, dangerous, units, fc.constantFrom("💥", "\ud83d", "\udca5", "\n", "\u001b[31m")), {
    maxLength: 80,
  })
  .map((pieces) => pieces.join(""));

describe("a text in a message", () => {
  test.each([
    ["evil\u001b[31m\nFATAL forged line", "evil\\u001b[31m\\u000aFATAL forged line"],
    ["a\u2028b\u2029c\u0085d", "a\\u2028b\\u2029c\\u0085d"],
    ["user\u202etxt.exe", "user\\u202etxt.exe"],
    ["\ud83d alone", "\\ud83d alone"],
    ["tag\u{e0041}", "tag\\u{e0041}"],
    ["host:17, é, 名前, 💥", "host:17, é, 名前, 💥"],
  ])("%j is shown as %j", (text, shown) => {
    expect(printable(text)).toBe(shown);
  });

  test("is cut at 200 code units, between two characters", () => {
    expect(printable("x".repeat(200))).toBe("x".repeat(200));
    expect(printable("x".repeat(201))).toBe(`${"x".repeat(199)}…`);
    expect(printable(`${"x".repeat(198)}💥💥`)).toBe(`${"x".repeat(198)}…`);
    expect(printable(`${"x".repeat(197)}💥💥`)).toBe(`${"x".repeat(197)}💥…`);
  });

  test("whatever it is, is safe, bounded, and not escaped again", () => {
    fc.assert(
      fc.property(texts, fc.integer({ min: 2, max: 300 }), (text, maxLength) => {
        const shown = printable(text, maxLength);
        expect(isSafe(shown)).toBe(true);
        expect(shown.length).toBeLessThanOrEqual(maxLength);
        expect(printable(shown, maxLength)).toBe(shown);
        if (isSafe(printable(text, Infinity)) && text === printable(text, Infinity))
          expect(shown === text || shown.endsWith("…")).toBe(true);
      }),
    );
  });
});

describe("an error's message", () => {
  const holder = (fields: Partial<Contender>) =>
    ({ owner: undefined, key: "jobs/77", ...fields }) as Contender;

  test.each<[string, (text: string) => Error]>([
    ["the owner of the lock", (owner) => new LockTimeoutError("jobs", 5, holder({ owner }), 1)],
    ["the key of the holder", (key) => new LockTimeoutError("jobs", 5, holder({ key }), 1)],
    ["a member's answer", (text) => new EtcdUnavailableError("read", new Map([["a:1", new Error(text)]]))],
    ["the reason of a refusal", (text) => new EtcdRefusedError("other", "a:1", text)],
    ["the same with what was refused", (text) => new EtcdRefusedError("other", "a:1", text).during("read")],
  ])("is one safe line of bounded length whatever %s is, and the fields stay as they are", (_, make) => {
    fc.assert(
      fc.property(texts, (text) => {
        const error = make(text);
        expect(isSafe(error.message)).toBe(true);
        expect(error.message.length).toBeLessThan(400);
        // The first line of the stack contains the message.
        expect(error.stack).toContain(error.message);
        if (error instanceof LockTimeoutError)
          expect([error.holder?.owner, error.holder?.key]).toContain(text);
        if (error instanceof EtcdUnavailableError) expect(error.members.get("a:1")?.message).toBe(text);
      }),
    );
  });

  test("is one safe line whatever the lock's name is, which stays whole", () => {
    fc.assert(
      fc.property(hostileNames, (name) => {
        const errors = [
          new LockTimeoutError(name, 5, undefined, undefined),
          new LockLostError(name, `${name}/77`, "deleted"),
          new LockReleasedError(name),
          new LockExpiringError(name, 5),
          new DeadlockError(name, `Lock "${name}" would wait for itself`),
          new EtcdUnavailableError(`join the queue of "${name}"`, new Map()),
          new EtcdRefusedError("quota", "a:1", "no space", { what: `join the queue of "${name}"` }),
        ];
        for (const { message } of errors) {
          expect(isSafe(message)).toBe(true);
          expect(message).toContain(printable(name, Infinity));
        }
        expect(errors[0]).toMatchObject({ lockName: name });
      }),
    );
  });
});
