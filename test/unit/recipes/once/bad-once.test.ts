import { afterAll, describe, expect, test } from "vitest";
import { catchUp, once, Session, share } from "../../../../src/index.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { expectMisuse, outOfRange, rejection, titled, wrongType } from "../../../support/fixtures/misuse.js";

const lease = new FakeCluster().lease();
const session = Reflect.construct(Session, [lease]) as Session;
afterAll(() => lease.abandon());
const work = () => undefined;

const SLOT = "a whole number from 0 to 9007199254740991";
const TEXT = "a well-formed string that is not empty";
const BAD_SLOTS = [
  wrongType("slot", SLOT, undefined),
  outOfRange("slot", TEXT, "", '""'),
  outOfRange("slot", TEXT, "\ud800", '"\\ud800"'),
  outOfRange("slot", "at most 1024 bytes with its name, percent-encoded", "/".repeat(341), "1025"),
  wrongType("slot", SLOT, new Date(0), "an object (Date)"),
  wrongType("slot", SLOT, 1n, "1n"),
  outOfRange("slot", SLOT, -1),
  outOfRange("slot", SLOT, 0.5),
  outOfRange("slot", SLOT, NaN),
  outOfRange("slot", SLOT, 2 ** 53),
];
const RERUN = '"never", "if_lost" or "if_failed"';
const IF_HELD = '"wait" or "skip"';
const KEEP = "a whole number from 1 to 100000";
const BAD_OPTIONS = [
  outOfRange("rerun", RERUN, "if-lost", '"if-lost"'),
  wrongType("rerun", RERUN, true),
  outOfRange("ifHeld", IF_HELD, "fail", '"fail"'),
  wrongType("ifHeld", IF_HELD, false),
  outOfRange("keep", KEEP, 0),
  outOfRange("keep", KEEP, 100_001),
  outOfRange("keep", KEEP, 1.5),
  wrongType("keep", KEEP, "7", '"7"'),
];

describe("once", () => {
  test.each(titled(BAD_SLOTS))("rejects with the rule of %s", async (_, each) => {
    expectMisuse(await rejection(() => once(session, "a", each.value as never, work)), each);
  });

  test.each(titled(BAD_OPTIONS))("rejects with the rule of %s", async (_, each) => {
    const options = { [each.option]: each.value } as never;

    expectMisuse(await rejection(() => once(session, "a", 1, work, options)), each);
  });

  test("rejects a name, work and options that are none", async () => {
    const messages = [
      await rejection(() => once(session, "a/", 1, work)),
      await rejection(() => once(session, "a", 1, 7 as never)),
      await rejection(() => once(session, "a", 1, work, { keeps: 7 } as never)),
      await rejection(() => once({} as never, "a", 1, work)),
    ].map((error) => (error as Error).message);

    expect(messages).toEqual([
      'Expected name to be free of "/" at its ends and of "//", got "a/"',
      "Expected work to be a function, got 7",
      expect.stringContaining("Unknown option keeps of once: did you mean keep?"),
      expect.stringContaining("Expected source to be a Cluster or a Session"),
    ]);
  });
});

test.each([
  ["share", "ttlMs", () => share(session, "a", work, undefined as never)],
  ["catchUp", "missed", () => catchUp(session, "a", [], work, undefined as never)],
])("%s without options names %s, which is missing", async (_, option, call) => {
  const error = await rejection(call);

  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toMatch(new RegExp(`^Expected ${option} to be .*, got undefined$`));
});
