import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { checkSignal } from "../../../../src/base/options/check.js";
import { checkPem } from "../../../../src/base/options/connect.js";
import { allowListeners } from "../../../../src/base/util/abort.js";
import { isAbortSignal, isBytes, isError, isPromise } from "../../../../src/base/util/realm.js";

/** As in a DOM of JavaScript: no class of Node.js is above it. */
class ForeignSignal {
  readonly aborted = false;
  throwIfAborted(): void {}
  addEventListener(): void {}
  get [Symbol.toStringTag](): string {
    return "AbortSignal";
  }
}

describe("where others have replaced the globals of Node.js", () => {
  test("what comes from another realm is recognized", () => {
    const theirs = (code: string): unknown => runInNewContext(code);

    expect(theirs("new Error()") instanceof Error).toBe(false);
    expect(
      [theirs("new TypeError('x')"), new DOMException("x"), new RangeError("x")].map(isError),
    ).not.toContain(false);
    expect([theirs("new Uint8Array(1)"), Buffer.alloc(1)].map(isBytes)).toEqual([true, true]);
    expect([theirs("Promise.resolve()"), (async () => {})()].map(isPromise)).toEqual([true, true]);
    expect([new ForeignSignal(), new AbortController().signal].map(isAbortSignal)).toEqual([true, true]);
    // A polyfill of old, which could not be used.
    expect(
      isAbortSignal({ aborted: false, addEventListener() {}, [Symbol.toStringTag]: "AbortSignal" }),
    ).toBe(false);
    for (const is of [isError, isBytes, isPromise, isAbortSignal])
      expect([undefined, null, "x", 1, {}, [], new Uint16Array(1), theirs("({})")].map(is)).not.toContain(
        true,
      );
  });

  test("a signal and a certificate of another realm are taken, and a target that is not Node's has no limit to lift", () => {
    const signal = new ForeignSignal() as unknown as AbortSignal;

    expect(checkSignal(signal)).toBe(signal);
    expect(() => allowListeners(signal)).not.toThrow();
    const theirs = runInNewContext("new Uint8Array([45])") as Uint8Array;
    expect(() => checkPem("credentials.rootCertificate", theirs)).toThrow(
      /^Expected \S+ to be PEM text, got/,
    );
  });
});
