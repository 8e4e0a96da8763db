import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { type Cluster, connect, Election, lead, Session } from "../../../../src/index.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { isName } from "../../../support/fixtures/hostile-names.js";
import { isMisuse, junk } from "../../../support/fakes/junk.js";
import {
  BAD_SESSIONS,
  BAD_WAITS,
  expectMisuse,
  type Misuse,
  NO_OBJECTS,
  outOfRange,
  rejection,
  thrown,
  titled,
  wrongType,
} from "../../../support/fixtures/misuse.js";

// Port 1: these tests connect to nothing, because misuse is detected before.
const cluster = connect({ hosts: "127.0.0.1:1" });
const fake = new FakeCluster();
const lease = fake.lease();
const session = Reflect.construct(Session, [lease]) as Session;
const election = new Election(session, "jobs");
const work = () => undefined;
afterAll(() => lease.abandon());

const given = ({ option, value }: Misuse) => ({ [option]: value }) as never;

const SIGNALS = BAD_WAITS.filter(({ option }) => option === "signal");

describe("the options of lead", () => {
  test.each(titled([...BAD_SESSIONS, ...SIGNALS]))("are rejected with the rule of %s", async (_, each) => {
    expectMisuse(await rejection(() => lead(cluster, "jobs", work, given(each))), each);
  });

  test("are rejected if they are no object, or by the name of an unknown one", async () => {
    for (const [got, options] of NO_OBJECTS) {
      const error = (await rejection(() => lead(cluster, "jobs", work, options as never))) as Error;
      expect(error.message).toBe(`Expected the options of lead to be an object, got ${got}`);
    }
    const error = await rejection(() => lead(cluster, "jobs", work, { abortSignal: undefined } as never));
    expect((error as Error).message).toContain("Unknown option abortSignal of lead");
  });
});

describe("observe", () => {
  test.each(titled(SIGNALS))("throws with the rule of %s", (_, each) => {
    expectMisuse(
      thrown(() => election.observe(given(each))),
      each,
    );
  });

  test("throws for an unknown option, and for what is no object", () => {
    const unknown = thrown(() => election.observe({ timeoutMs: 5 } as never)) as Error;
    expect(unknown.message).toContain("Unknown option timeoutMs of observe");
    for (const options of NO_OBJECTS.values())
      expect(thrown(() => election.observe(options as never))).toBeInstanceOf(TypeError);
  });
});

const VALUE_RULE = "a well-formed string of at most 65536 bytes";
const BAD_VALUES = [
  wrongType("value", VALUE_RULE, 7),
  wrongType("value", VALUE_RULE, null),
  wrongType("value", VALUE_RULE, Buffer.from("x"), "an object (Buffer)"),
  outOfRange("value", VALUE_RULE, "x".repeat(65_537), `"${"x".repeat(60)}…"`),
  outOfRange("value", VALUE_RULE, "é".repeat(32_769), `"${"é".repeat(60)}…"`),
  outOfRange("value", VALUE_RULE, "\ud800", '"\\ud800"'),
];

describe("a value", () => {
  test.each(titled(BAD_VALUES))("is refused by campaign and lead: %s", async (_, each) => {
    expectMisuse(await rejection(() => election.campaign(each.value as string)), each);
    expectMisuse(await rejection(() => lead(cluster, "jobs", work, given(each))), each);
  });

  test("is not taken for granted by campaign", async () => {
    const error = await rejection(() => election.campaign(undefined as never));
    expectMisuse(error, wrongType("value", VALUE_RULE, undefined));
  });
});

describe("new Election", () => {
  test("takes exactly the names that the README allows, and no source but a Cluster or a Session", () => {
    const tried = (make: () => Election) => {
      try {
        return make();
      } catch (error) {
        if (!isMisuse(error)) throw error;
        return undefined;
      }
    };
    const names = fc.oneof(
      fc.string({ unit: "binary", maxLength: 1030 }),
      fc.string({ unit: fc.constantFrom("/", "a", "\ud800", "\udc00", "\0", "💥"), maxLength: 6 }),
      junk,
    );
    fc.assert(
      fc.property(names, junk, (name, source) => {
        const made = tried(() => new Election(session, name as string));
        expect(made?.name).toBe(typeof name === "string" && isName(name) ? name : undefined);
        expect(tried(() => new Election(source as Session, "jobs"))).toBeUndefined();
      }),
      { numRuns: 200 },
    );
  });
});

describe("lead", () => {
  test.each(
    titled([
      wrongType("work", "a function", undefined),
      wrongType("work", "a function", Promise.resolve(), "an object (Promise)"),
    ]),
  )("rejects %s", async (_, each) => {
    expectMisuse(await rejection(() => lead(cluster, "jobs", each.value as () => void)), each);
  });

  test.each(
    titled([
      wrongType("onLeader", "a function", 7),
      wrongType("onLeader", "a function", null),
      wrongType("onRetry", "a function", true),
      wrongType("onRetry", "a function", null),
    ]),
  )("rejects %s", async (_, each) => {
    expectMisuse(await rejection(() => lead(cluster, "jobs", work, given(each))), each);
  });

  test("rejects a session, and bad names", async () => {
    const rule = "a Cluster, made by connect()";
    const source = session as unknown as Cluster;
    expectMisuse(
      await rejection(() => lead(source, "jobs", work)),
      wrongType("cluster", rule, session, "an object (Session)"),
    );
    for (const name of ["", "/a", "a//b", 7, undefined])
      expect(isMisuse(await rejection(() => lead(cluster, name as string, work)))).toBe(true);
  });

  test("asks etcd nothing when it is misused", () => {
    expect(fake.connected).toEqual([]);
  });
});
