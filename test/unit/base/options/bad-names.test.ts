import { afterAll, describe, expect, test } from "vitest";
import { lockAll, Session } from "../../../../src/index.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { expectMisuse, outOfRange, rejection, titled, wrongType } from "../../../support/fixtures/misuse.js";

const lease = new FakeCluster().lease();
const session = Reflect.construct(Session, [lease]) as Session;
afterAll(() => lease.abandon());

const ARRAY = "an array of 1 to 30 names";
const many = Array.from({ length: 31 }, (_, n) => `n${n}`);

const BAD_NAMES = [
  wrongType("names", ARRAY, undefined),
  wrongType("names", ARRAY, "jobs", '"jobs"'),
  wrongType("names", ARRAY, new Set(["a"]), "an object (Set)"),
  wrongType("names", ARRAY, { length: 1, 0: "a" }, "an object (Object)"),
  outOfRange("names", ARRAY, [], "0"),
  outOfRange("names", ARRAY, many, "31"),
  wrongType("name", "a string", ["a", 7], "7"),
  // A hole is not a name.
  wrongType("name", "a string", Object.assign([], { length: 2, 1: "a" }), "undefined"),
  outOfRange("name", 'free of "/" at its ends and of "//"', ["a", "b/"], '"b/"'),
  outOfRange("name", "1 to 1024 bytes of well-formed Unicode", [""], '""'),
  outOfRange("names", "free of duplicates", ["a", "b", "a"], '"a"'),
  outOfRange("names", "not nested", ["a/b", "c", "a"], '"a/b" below "a"'),
  outOfRange("names", "not nested", ["a", "a-", "a/b/c"], '"a/b/c" below "a"'),
];

describe("lockAll", () => {
  test.each(titled(BAD_NAMES))("rejects with the rule of %s", async (_, each) => {
    expectMisuse(await rejection(() => lockAll(session, each.value as never)), each);
  });

  test("rejects what is no Cluster and no Session", async () => {
    const error = await rejection(() => lockAll({} as never, ["a"]));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain("Expected source to be a Cluster or a Session");
  });

  test("takes names of which one begins like the other, but does not lie under it", async () => {
    const signal = AbortSignal.abort(new Error("not sent"));

    await expect(lockAll(session, ["a", "ab", "a-/b"], { signal })).rejects.toThrow("not sent");
  });
});
