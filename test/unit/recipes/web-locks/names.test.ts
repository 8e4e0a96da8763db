import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { KeyValue } from "../../../../src/etcd/port.js";
import { checkName } from "../../../../src/base/options/check.js";
import {
  heldAndPending,
  namedEntryOf,
  queueNameOf,
  webLockEntryIn,
} from "../../../../src/recipes/web-locks/arguments.js";

const kv = (key: string | Buffer): KeyValue => ({
  key: Buffer.from(key as string),
  value: "",
  createRevision: 1n,
  modRevision: 1n,
  leaseId: 1n,
});
/** Any code units, including lone surrogates. */
const domString = fc
  .array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 40 })
  .map((units) => String.fromCharCode(...units));

describe("the queue of a lock", () => {
  test("has a name that keeps the rules, and tells the lock's name, whatever that is", () => {
    fc.assert(
      fc.property(domString, (name) => {
        const queue = queueNameOf("web", name);

        expect(checkName(queue)).toBe(queue);
        expect(queue.slice(4)).not.toContain("/");
        expect(namedEntryOf("web", kv(`${queue}/write/7b`))).toMatchObject({
          name,
          mode: "exclusive",
          foreign: false,
        });
      }),
    );
  });

  test("is another one for another name", () => {
    fc.assert(
      fc.property(domString, domString, (a, b) => {
        expect(queueNameOf("web", a) === queueNameOf("web", b)).toBe(a === b);
      }),
    );
    expect(queueNameOf("web", "\ud800")).not.toBe(queueNameOf("web", "\ufffd"));
  });

  test("of the empty name is one, too", () => {
    expect(queueNameOf("web", "")).toBe("web/=");
    expect(namedEntryOf("web", kv("web/=/read/7b"))).toMatchObject({ name: "", mode: "shared" });
  });

  test("holds a name of 4096 code units, and refuses a longer one", () => {
    expect(queueNameOf("web", "\uffff".repeat(4096))).toHaveLength(4 + Math.ceil((8192 * 4) / 3));
    expect(() => queueNameOf("web", "x".repeat(4097))).toThrow(RangeError);
  });
});

describe("a key that is longer than that of any lock", () => {
  const long = "A".repeat(1_400_000);

  test("below the prefix belongs to no lock, although its name could be decoded", () => {
    expect(namedEntryOf("web", kv(`web/${long}/write/7b`))).toBeUndefined();
  });

  test.each([long, `write/${long}`, "/".repeat(1_400_000), `${"x".repeat(20_000)}/a/b/c`])(
    "in a queue is a foreign one (%#)",
    (below) => {
      expect(webLockEntryIn("web/jobs", kv(`web/jobs/${below}`)).foreign).toBe(true);
    },
  );
});

describe("a key", () => {
  const queue = queueNameOf("web", "jobs");

  test.each([
    ["of a mutex", `${queue}/7b`, "exclusive", false],
    ["of a writer", `${queue}/write/7b`, "exclusive", false],
    ["of a reader", `${queue}/read/7b-2`, "shared", false],
    ["that is called read itself", `${queue}/read`, "exclusive", false],
    ["further below", `${queue}/a/7b`, "exclusive", true],
    ["further below the readers", `${queue}/read/a/7b`, "shared", true],
    ["further below the writers", `${queue}/write/a/7b`, "exclusive", true],
  ] as const)("%s is %s: %s, and somebody else's: %s", (_, key, mode, foreign) => {
    expect(webLockEntryIn(queue, kv(key))).toMatchObject({ mode, foreign });
    expect(namedEntryOf("web", kv(key))).toMatchObject({ name: "jobs", mode, foreign });
  });

  test.each([
    ["directly below the prefix", "web/7b"],
    ["below what is no base64url", "web/?/7b"],
    ["below an odd number of bytes", `web/${Buffer.from("abc").toString("base64url")}/7b`],
    ["below base64url that nobody writes so", `${queueNameOf("web", "jobs")}==/7b`],
    ["below nothing", "web//7b"],
  ])("%s is no lock's", (_, key) => {
    expect(namedEntryOf("web", kv(key))).toBeUndefined();
  });

  test("that is not text belongs to no lock", () => {
    expect(
      namedEntryOf("web", { ...kv(""), key: Buffer.from([0x77, 0x65, 0x62, 0x2f, 0xff, 0x2f, 0xfe]) }),
    ).toBeUndefined();
  });
});

describe("of the places in a queue", () => {
  const places = (modes: string) =>
    [...modes].map((letter) => ({ mode: letter === "s" ? "shared" : "exclusive" }) as const);

  test.each([
    ["", 0],
    ["x", 1],
    ["xx", 1],
    ["xs", 1],
    ["s", 1],
    ["sss", 3],
    ["ssxs", 2],
    ["sxx", 1],
  ])("%j the first %i hold", (modes, holding) => {
    const { held, pending } = heldAndPending(places(modes));

    expect([held.length, pending.length]).toEqual([holding, modes.length - holding]);
  });
});
