// How `request` converts its arguments: nothing connects here, because every rejection comes before that.
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { ClusterLockManager, connect, Session } from "../../../../src/index.js";
import { checkArguments, convertArguments } from "../../../../src/recipes/web-locks/arguments.js";
import { junk } from "../../../support/fakes/junk.js";
import { expectMisuse, outOfRange, rejection, thrown, wrongType } from "../../../support/fixtures/misuse.js";

const cluster = connect({ hosts: "127.0.0.1:1" });
const locks = new ClusterLockManager(cluster);
afterAll(() => cluster.close({ drainMs: 0 }));

const never = () => {
  throw new Error("called back");
};
type Anything = (...given: unknown[]) => Promise<unknown>;
const request: Anything = (...given) => (locks.request as Anything).apply(locks, given);
const converted = (name: unknown, second: unknown, ...rest: unknown[]) =>
  convertArguments(name, second, rest);

describe("a request", () => {
  test.each([
    ["nothing", []],
    ["a name only", ["name"]],
    ["an undefined callback", ["name", undefined]],
    ["null instead of a callback", ["name", null]],
    ["options without a callback", ["name", {}]],
    ["a callback in the place of options, and none behind it", ["name", never, undefined]],
    ["a callback that is a string", ["name", {}, "call me"]],
    ["options that are a number", ["name", 1, never]],
    ["options that are a string", ["name", "shared", never]],
    ["options that are a symbol", ["name", Symbol("x"), never]],
    ["a name that is a symbol", [Symbol("x"), never]],
    ["an unknown mode", ["name", { mode: "foo" }, never]],
    ["a null mode", ["name", { mode: null }, never]],
    ["a mode in capitals", ["name", { mode: "SHARED" }, never]],
    ["a null signal", ["name", { signal: null }, never]],
    ["a signal that is an object", ["name", { signal: { aborted: false } }, never]],
    ["a signal that is a function", ["name", { signal: never }, never]],
  ])("with %s rejects with a TypeError", async (_, given) => {
    expect(await rejection(() => request(...given))).toBeInstanceOf(TypeError);
  });

  test.each([
    ["undefined", undefined],
    ["null", null],
    ["12.5", 12.5],
    ["7", 7n],
    ["a,b", ["a", "b"]],
    ["made", { toString: () => "made" }],
    ["", ""],
    ["\ud800", "\ud800"],
  ])("makes the name %j of its first argument, whatever that is", (name, given) => {
    expect(converted(given, never).name).toBe(name);
  });

  test.each([
    [undefined],
    [null],
    [{}],
    [[]],
    [never],
    [{ mode: undefined, signal: undefined, steal: undefined }],
  ])("takes the defaults where the options are %s", (options) => {
    const { callback, ...asked } = converted("name", options, never);

    expect(asked).toEqual({
      name: "name",
      mode: "exclusive",
      ifAvailable: false,
      steal: false,
      signal: undefined,
    });
    expect(callback).toBe(never);
  });

  test("converts options as the web does: what is truthy is true, and what has a string for a mode is that mode", () => {
    const mode = { toString: () => "shared" };

    expect(converted("name", { mode, ifAvailable: 1, steal: "" }, never)).toMatchObject({
      mode: "shared",
      ifAvailable: true,
      steal: false,
    });
  });

  test("ignores options that the standard does not know, and arguments behind the third, and does not read them", () => {
    const options = {
      get timeoutMs(): never {
        throw new Error("read");
      },
    };

    expect(converted("name", options, never, "more").callback).toBe(never);
  });

  test("converts the name first, then the options in the order of their names, then the callback", () => {
    const order: string[] = [];
    const name = { toString: () => (order.push("name"), "name") };
    const options = {
      get steal() {
        return order.push("steal") < 0;
      },
      get signal() {
        return void order.push("signal");
      },
      get mode() {
        return void order.push("mode");
      },
      get ifAvailable() {
        return order.push("ifAvailable") < 0;
      },
    };

    expect(() => converted(name, options, "no function")).toThrow(TypeError);
    expect(order).toEqual(["name", "ifAvailable", "mode", "signal", "steal"]);
  });

  test("rejects with what a getter or a name's toString throws, itself", async () => {
    const boom = { not: "an error" };
    const throws = () => {
      throw boom;
    };

    expect(await rejection(() => request({ toString: throws }, never))).toBe(boom);
    expect(
      await rejection(() => request("name", Object.defineProperty({}, "mode", { get: throws }), never)),
    ).toBe(boom);
  });

  test("is a method of a manager only", async () => {
    const { request: detached, query } = locks as unknown as Record<string, Anything>;

    expect(await rejection(() => detached!("name", never))).toBeInstanceOf(TypeError);
    expect(await rejection(() => query!())).toBeInstanceOf(TypeError);
    expect([locks.request.length, locks.query.length]).toEqual([2, 0]);
  });

  const { signal } = new AbortController();
  test.each([
    ['a name that begins with "-"', "-", {}],
    ['another name that begins with "-"', "-foo", {}],
    ["steal and ifAvailable", "name", { steal: true, ifAvailable: true }],
    ["steal and a shared mode", "name", { steal: true, mode: "shared" }],
    ["steal and a signal", "name", { steal: true, signal }],
    ["ifAvailable and a signal", "name", { ifAvailable: true, signal }],
  ])("with %s rejects with NotSupportedError", async (_, name, options) => {
    const error = await rejection(() => request(name, options, never));

    expect(error).toBeInstanceOf(DOMException);
    expect(error).toMatchObject({ name: "NotSupportedError", code: 9 });
  });

  test("takes a name with a minus elsewhere", () => {
    expect(() => checkArguments(converted("x-anything", never))).not.toThrow();
  });

  test("with an aborted signal rejects with its very reason, after everything else is found right", async () => {
    const reason = "my dog ate it";
    const aborted = AbortSignal.abort(reason);

    expect(await rejection(() => request("name", { signal: aborted }, never))).toBe(reason);
    expect(await rejection(() => request("-", { signal: aborted }, never))).toMatchObject({
      name: "NotSupportedError",
    });
    expect(await rejection(() => request("name", { signal: aborted, steal: true }, never))).toMatchObject({
      name: "NotSupportedError",
    });
    expect(await rejection(() => request("name", { signal: aborted }, "none"))).toBeInstanceOf(TypeError);
  });

  test("with an aborted signal and no reason of its own rejects with AbortError", async () => {
    expect(await rejection(() => request("name", { signal: AbortSignal.abort() }, never))).toMatchObject({
      name: "AbortError",
    });
  });

  test("for a name of more than 4096 code units rejects with a RangeError that says so", async () => {
    const name = "x".repeat(4097);
    const expected = outOfRange("name", "at most 4096 UTF-16 code units", name, `"${"x".repeat(60)}…"`);

    expectMisuse(await rejection(() => request(name, never)), expected);
  });
});

test("whatever is asked for is converted, or refused with a TypeError", () => {
  const options = fc.oneof(
    junk,
    fc.record({ mode: junk, signal: junk, ifAvailable: junk }, { requiredKeys: [] }),
  );
  fc.assert(
    fc.property(junk, options, fc.oneof(junk, fc.constant(never)), (name, given, callback) => {
      try {
        const asked = converted(name, given, callback);
        expect(["exclusive", "shared"]).toContain(asked.mode);
        expect(typeof asked.name).toBe("string");
      } catch (error) {
        expect(error).toBeInstanceOf(TypeError);
      }
    }),
  );
});

describe("a closed manager", () => {
  const closed = async () => {
    const manager = new ClusterLockManager(cluster);
    await manager.close();
    return manager;
  };

  test("refuses requests and queries with InvalidStateError, as a document that is not active does", async () => {
    const manager = await closed();

    for (const call of [() => manager.request("name", never), () => manager.query()]) {
      const error = await rejection(call);
      expect(error).toBeInstanceOf(DOMException);
      expect(error).toMatchObject({ name: "InvalidStateError" });
    }
  });

  test("looks at its state before it looks at the name, and after the conversions", async () => {
    const manager = await closed();

    expect(await rejection(() => manager.request("-", never))).toMatchObject({ name: "InvalidStateError" });
    expect(await rejection(() => (manager.request as Anything).call(manager, "name"))).toBeInstanceOf(
      TypeError,
    );
  });

  test("can be closed again, and was disposed of", async () => {
    const manager = await closed();

    await manager.close({ drainMs: 0 });
    await manager[Symbol.asyncDispose]();
    await using disposed = new ClusterLockManager(cluster);
    expect(disposed).toBeInstanceOf(ClusterLockManager);
  });

  test.each([
    wrongType("drainMs", "a number of milliseconds from 0 to 2147483647", "1", '"1"'),
    outOfRange("drainMs", "a number of milliseconds from 0 to 2147483647", -1),
  ])("was not closed by bad options: $option $got", async (misuse) => {
    const manager = new ClusterLockManager(cluster);

    expectMisuse(await rejection(() => manager.close({ drainMs: misuse.value as number })), misuse);
    expect(await rejection(() => manager.request("-", never))).toMatchObject({ name: "NotSupportedError" });
    await manager.close();
  });
});

describe("new ClusterLockManager", () => {
  const slashes = 'free of "/" at its ends and of "//"';

  test.each([
    outOfRange("prefix", "1 to 1024 bytes of well-formed Unicode", "", '""'),
    outOfRange("prefix", "1 to 1024 bytes of well-formed Unicode", "\ud800", '"\\ud800"'),
    outOfRange("prefix", slashes, "/a", '"/a"'),
    outOfRange("prefix", slashes, "a//b", '"a//b"'),
    wrongType("prefix", "a string", 7),
    wrongType("prefix", "a string", null),
  ])("throws for the prefix $got", (misuse) => {
    expectMisuse(
      thrown(() => new ClusterLockManager(cluster, { prefix: misuse.value as string })),
      misuse,
    );
  });

  test("throws for an option that it does not know", () => {
    const error = thrown(() => new ClusterLockManager(cluster, { prefx: "a" } as never));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain("did you mean prefix?");
  });

  test.each([undefined, null, "hosts", {}, Reflect.construct(Object, [], Session) as unknown])(
    "throws for %s instead of a cluster",
    (given) => {
      expect(thrown(() => new ClusterLockManager(given as never))).toBeInstanceOf(TypeError);
    },
  );
});
