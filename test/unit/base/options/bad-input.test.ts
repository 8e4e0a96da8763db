import { afterAll, describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  Session,
} from "../../../../src/index.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import {
  BAD_OWNERS,
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
const lease = new FakeCluster().lease();
const session = Reflect.construct(Session, [lease]) as Session;
const mutex = new Mutex(session, "jobs");
const rwlock = new RwLock(session, "jobs");
const semaphore = new Semaphore(session, "jobs", 2);
const election = new Election(session, "jobs");
const work = () => undefined;

/** A function that returns a promise, called with the given options. */
type Call = (options: never) => Promise<unknown>;

const WAITING: readonly (readonly [name: string, call: Call, known: string])[] = [
  ["cluster.session", (options) => cluster.session(options), "timeoutMs"],
  ["Session.open", (options) => Session.open(cluster, options), "ttlSeconds, owner, signal, timeoutMs"],
  ["Session.adopt", (options) => Session.adopt(cluster, 7n, options), "owner, signal, timeoutMs"],
  ["lock", (options) => mutex.lock(options), "timeoutMs"],
  ["tryLock", (options) => mutex.tryLock(options), "timeoutMs"],
  ["withLock", (options) => mutex.withLock(work, options), "signal, timeoutMs, reentrant"],
  ["readLock", (options) => rwlock.readLock(options), "timeoutMs"],
  ["writeLock", (options) => rwlock.writeLock(options), "timeoutMs"],
  ["tryReadLock", (options) => rwlock.tryReadLock(options), "timeoutMs"],
  ["tryWriteLock", (options) => rwlock.tryWriteLock(options), "timeoutMs"],
  ["withReadLock", (options) => rwlock.withReadLock(work, options), "signal, timeoutMs"],
  ["withWriteLock", (options) => rwlock.withWriteLock(work, options), "signal, timeoutMs"],
  ["acquire", (options) => semaphore.acquire(options), "timeoutMs"],
  ["tryAcquire", (options) => semaphore.tryAcquire(options), "timeoutMs"],
  ["withPermit", (options) => semaphore.withPermit(work, options), "signal, timeoutMs"],
  ["lockAll", (options) => lockAll(session, ["a"], options), "signal, timeoutMs"],
  ["once", (options) => once(session, "a", 1, work, options), "rerun, keep"],
  ["campaign", (options) => election.campaign("me", options), "signal, timeoutMs"],
  ["leader", (options) => election.leader(options), "signal, timeoutMs"],
];
const CLOSING: readonly (readonly [name: string, call: Call])[] = [
  ["cluster.close", (options) => cluster.close(options)],
  ["session.close", (options) => session.close(options)],
];

const given = ({ option, value }: Misuse) => ({ [option]: value }) as never;

afterAll(() => lease.abandon());

describe.each(WAITING)("%s", (name, call, known) => {
  test.each(titled(BAD_WAITS))("rejects with the rule of %s", async (_, each) => {
    expectMisuse(await rejection(() => call(given(each))), each);
  });

  test.each([...NO_OBJECTS.keys()])("rejects %s instead of options", async (got) => {
    const error = await rejection(() => call(NO_OBJECTS.get(got) as never));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toBe(`Expected the options of ${name} to be an object, got ${got}`);
  });

  test.each(["timeout", "timeoutMS", "abortSignal", "waitOptions"])(
    "rejects the unknown option %s and names those it knows",
    async (option) => {
      const error = await rejection(() => call({ [option]: undefined } as never));

      expect(error).toBeInstanceOf(TypeError);
      expect((error as Error).message).toContain(`Unknown option ${option} of ${name}`);
      for (const each of known.split(", ")) expect((error as Error).message).toContain(each);
    },
  );

  test("names the option that a misspelt one was probably meant to be", async () => {
    const error = await rejection(() => call({ timeout: 1000 } as never));

    expect((error as Error).message).toContain("did you mean timeoutMs?");
  });
});

const REASONED = WAITING.filter(([name]) => /^(?!try).*lock|^(acquire|withPermit)$/i.test(name));

test.each(REASONED)("%s rejects a reason that is none", async (_, call) => {
  const rule = "a string of at most 256 bytes";
  const formed = "a well-formed string of at most 256 bytes";
  for (const each of [
    wrongType("reason", rule, 7),
    outOfRange("reason", formed, "é".repeat(129), `"${"é".repeat(60)}…"`),
    outOfRange("reason", formed, "\ud800", String.raw`"\ud800"`),
  ])
    expectMisuse(await rejection(() => call(given(each))), each);
});

test.each(WAITING.filter((each) => !REASONED.includes(each)))("%s knows no reason", async (_, call) => {
  const error = await rejection(() => call({ reason: "why" } as never));

  expect((error as Error).message).toMatch(/^Unknown option reason of /);
});

describe.each(CLOSING)("%s", (_, call) => {
  const rule = "a number of milliseconds from 0 to 2147483647";
  const cases = [
    ...[-1, NaN, Infinity, 2 ** 31].map((value) => outOfRange("drainMs", rule, value)),
    wrongType("drainMs", rule, "5000", '"5000"'),
    wrongType("drainMs", rule, null),
  ];

  test.each(titled(cases))("rejects with the rule of %s, and closes nothing", async (__, each) => {
    expectMisuse(await rejection(() => call(given(each))), each);

    expect(session.state).toBe("live");
  });

  test("rejects an unknown option, and closes nothing", async () => {
    const error = await rejection(() => call({ drain: 5000 } as never));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(/Unknown option drain of close: did you mean drainMs\?/);
    expect(session.state).toBe("live");
  });
});

describe("Session.open and Session.adopt", () => {
  test.each(titled(BAD_SESSIONS))("open rejects with the rule of %s", async (_, each) => {
    expectMisuse(await rejection(() => Session.open(cluster, given(each))), each);
  });

  test.each(titled(BAD_OWNERS))("adopt rejects with the rule of %s", async (_, each) => {
    expectMisuse(await rejection(() => Session.adopt(cluster, 7n, given(each))), each);
  });

  test.each(
    titled([
      wrongType("leaseId", "a bigint", 7),
      wrongType("leaseId", "a bigint", "694d9a1c", '"694d9a1c"'),
      wrongType("leaseId", "a bigint", undefined),
      outOfRange("leaseId", "from 1n to 2n ** 63n - 1n", 0n),
      outOfRange("leaseId", "from 1n to 2n ** 63n - 1n", -7n),
      outOfRange("leaseId", "from 1n to 2n ** 63n - 1n", 2n ** 63n),
    ]),
  )("adopt rejects %s", async (_, each) => {
    expectMisuse(await rejection(() => Session.adopt(cluster, each.value as bigint)), each);
  });

  test.each(
    titled([
      wrongType("cluster", "a Cluster, made by connect()", undefined),
      wrongType("cluster", "a Cluster, made by connect()", "127.0.0.1:2379", '"127.0.0.1:2379"'),
      wrongType("cluster", "a Cluster, made by connect()", { hosts: [] }, "an object (Object)"),
      wrongType("cluster", "a Cluster, made by connect()", session, "an object (Session)"),
    ]),
  )("both reject %s", async (_, each) => {
    const other = each.value as Cluster;

    expectMisuse(await rejection(() => Session.open(other)), each);
    expectMisuse(await rejection(() => Session.adopt(other, 7n)), each);
  });
});

describe.each([
  ["Mutex", (source: unknown, name: unknown) => new Mutex(source as Session, name as string)],
  ["RwLock", (source: unknown, name: unknown) => new RwLock(source as Session, name as string)],
  ["Semaphore", (source: unknown, name: unknown) => new Semaphore(source as Session, name as string, 2)],
])("new %s", (_, make) => {
  const sourceRule = "a Cluster or a Session";
  const nameRule = "1 to 1024 bytes of well-formed Unicode";
  const slashRule = 'free of "/" at its ends and of "//"';

  test.each(
    titled([
      wrongType("source", sourceRule, undefined),
      wrongType("source", sourceRule, null),
      wrongType("source", sourceRule, "jobs", '"jobs"'),
      wrongType("source", sourceRule, {}, "an object (Object)"),
      wrongType("source", sourceRule, mutex, "an object (Mutex)"),
    ]),
  )("throws for %s", (__, each) => {
    expectMisuse(
      thrown(() => make(each.value, "jobs")),
      each,
    );
  });

  test.each([
    ["a Cluster", new Proxy(cluster, {}), /^Expected source to be a Cluster or a Session, got /],
    ["a Session", new Proxy(session, {}), /^Expected session to be a Session, made by Session\.open\(\)/],
  ])("says what it needs if it gets a Proxy of %s", (__, proxy, text) => {
    const error = thrown(() => make(proxy, "jobs"));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(text);
  });

  test.each(
    titled([
      wrongType("name", "a string", undefined),
      wrongType("name", "a string", 7),
      outOfRange("name", nameRule, "", '""'),
      outOfRange("name", nameRule, "x".repeat(1025), `"${"x".repeat(60)}…"`),
      outOfRange("name", nameRule, "é".repeat(513), `"${"é".repeat(60)}…"`),
      outOfRange("name", nameRule, "a\ud800", '"a\\ud800"'),
      outOfRange("name", nameRule, "\udc00b", '"\\udc00b"'),
      ...["/", "/a", "a/", "a//b"].map((name) => outOfRange("name", slashRule, name, JSON.stringify(name))),
    ]),
  )("throws for %s", (__, each) => {
    expectMisuse(
      thrown(() => make(session, each.value)),
      each,
    );
  });

  test.each(["a", "a/b/c", "é".repeat(512), "💥", " ", "a\u0000b", "..", "%2F"])(
    "takes the name %j",
    (name) => {
      expect(make(session, name).name).toBe(name);
    },
  );
});

describe("new Semaphore", () => {
  const rule = "a whole number from 1 to 1000";

  test.each(
    titled([
      ...[0, -1, 1001, 1.5, NaN, Infinity].map((value) => outOfRange("permits", rule, value)),
      wrongType("permits", rule, undefined),
      wrongType("permits", rule, "3", '"3"'),
      wrongType("permits", rule, 3n),
    ]),
  )("throws for %s", (_, each) => {
    expectMisuse(
      thrown(() => new Semaphore(session, "jobs", each.value as number)),
      each,
    );
  });

  test.each([1, 1000])("takes %i permits", (permits) => {
    expect(new Semaphore(session, "jobs", permits).permits).toBe(permits);
  });
});

describe.each([
  ["withReadLock", (given: () => void) => rwlock.withReadLock(given)],
  ["withWriteLock", (given: () => void) => rwlock.withWriteLock(given)],
  ["withPermit", (given: () => void) => semaphore.withPermit(given)],
])("%s", (_, call) => {
  test.each(
    titled([
      wrongType("work", "a function", undefined),
      wrongType("work", "a function", Promise.resolve(), "an object (Promise)"),
    ]),
  )("rejects %s", async (__, each) => {
    expectMisuse(await rejection(() => call(each.value as () => void)), each);
  });
});

describe("withLock", () => {
  test.each(
    titled([
      wrongType("work", "a function", undefined),
      wrongType("work", "a function", Promise.resolve(), "an object (Promise)"),
    ]),
  )("rejects %s", async (_, each) => {
    expectMisuse(await rejection(() => mutex.withLock(each.value as () => void)), each);
  });

  test.each(
    titled([
      wrongType("reentrant", "true or false", 1),
      wrongType("reentrant", "true or false", "true", '"true"'),
      wrongType("reentrant", "true or false", null),
    ]),
  )("rejects %s", async (_, each) => {
    expectMisuse(await rejection(() => mutex.withLock(work, given(each))), each);
  });
});

describe("the message about a value", () => {
  const HOSTILE = "red\u001b[31m\u009b31m\u0000\r\nERROR fake\u202e\u2028";
  const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

  class Named {}
  Object.defineProperty(Named, "name", { value: HOSTILE });

  test.each<readonly [what: string, call: () => unknown]>([
    ["a name", () => new Mutex(session, `/${HOSTILE}`)],
    ["a name that is too long", () => new Mutex(session, HOSTILE.padEnd(1 << 20, "x"))],
    ["a label", () => new Mutex(session, "jobs", { label: HOSTILE })],
    ["an unknown option", () => new Mutex(session, "jobs", { [HOSTILE]: 1 } as never)],
    ["an object in the place of a name", () => new Mutex(session, new Named() as never)],
  ])("is one line without control characters, for %s", (_, call) => {
    const { message } = thrown(call) as Error;

    expect(message).toContain("red\\u001b[31m\\u009b31m\\u0000");
    expect(message).toContain("\\u202e\\u2028");
    expect(UNSAFE.test(message)).toBe(false);
    expect(message.length).toBeLessThan(400);
  });
});

test.each(["ttlSeconds", "owner", "releaseDelayMs"])(
  "connect says of %s that it belongs inside session",
  (option) => {
    expect(() => connect({ hosts: "127.0.0.1:2379", [option]: 5 })).toThrow(
      `Unknown option ${option} of connect: it belongs inside session, { session: { ${option} } }`,
    );
  },
);
