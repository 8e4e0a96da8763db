import { afterEach, describe, expect, it } from "vitest";
import { checkCut, checkLease, checkLosable, checkMember, checkQuiet } from "../../../src/testing/options.js";
import { startEtcd } from "../../../src/testing/start.js";

describe("startEtcd", () => {
  const before = process.env["PATH"];

  afterEach(() => {
    process.env["PATH"] = before;
  });

  it.each([
    [{ members: 2 }, "Expected members to be 1 or 3, got 2"],
    [{ members: "3" }, 'Expected members to be 1 or 3, got "3"'],
    [{ version: "latest" }, 'Expected version to be a version of etcd, such as "3.6", got "latest"'],
    [{ binary: "" }, 'Expected binary to be the path of an etcd program, got ""'],
    [{ image: 3 }, "Expected image to be the name of an image with etcd, got 3"],
    [
      { image: "etcd:v3.6.5", version: "3.6" },
      'Expected image to be given without binary and version, got "etcd:v3.6.5"',
    ],
    [{ signal: {} }, "Expected signal to be an AbortSignal, got an object (Object)"],
    [{ timeoutMs: 0 }, "Expected timeoutMs to be a whole number from 1 to 2147483647, got 0"],
    [{ timeout: 5 }, "Unknown option timeout of startEtcd: did you mean timeoutMs?"],
  ])("rejects %j before it starts anything", async (options, message) => {
    process.env["PATH"] = "";
    await expect(startEtcd(options as never)).rejects.toThrow(message);
  });
});

describe("the arguments of an etcd's methods", () => {
  it("are refused with the rule and the value", () => {
    expect(() => checkCut({ how: "hard" })).toThrow('Expected how to be "silent" or "reset", got "hard"');
    expect(() => checkMember(["a"], 1)).toThrow("Expected member to be a member's index, from 0 to 0, got 1");
    expect(() => checkMember(["a"], "0")).toThrow(TypeError);
    expect(() => checkLease("6a1f")).toThrow(
      'Expected session to be a Session, or the bigint ID of a lease, got "6a1f"',
    );
    expect(() => checkLease(0n)).toThrow(RangeError);
    expect(() => checkLosable({ key: "a" })).toThrow(
      "Expected lock to be a lock, or another hold, got an object",
    );
    expect(() => checkLosable(undefined)).toThrow(
      "Expected lock to be a lock, or another hold, got undefined",
    );
    expect(() => checkQuiet({ timeoutMs: -1 })).toThrow(RangeError);
  });

  it("mean every member, and a silent cut, if they are left out", () => {
    expect(checkMember(["a", "b", "c"], undefined)).toEqual(["a", "b", "c"]);
    expect(checkCut(undefined)).toBe("silent");
    expect(checkQuiet(undefined)).toBe(2_000);
  });
});
