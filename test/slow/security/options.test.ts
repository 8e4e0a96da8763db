import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, LeaseholdError, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { isMisuse, junk, junkOptions } from "../../support/fakes/junk.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

const RUNS = { numRuns: 150 };
/** A call that takes longer hangs. */
const PATIENCE_MS = 5000;
const HANGS = "hangs";

class CallersOwn extends Error {}

let etcd: EtcdCluster;
let cluster: Cluster;
let session: Session;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  session = await cluster.session();
}, 60_000);
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const wait = {
  signal: fc.constantFrom(AbortSignal.abort(new CallersOwn()), new AbortController().signal),
  timeoutMs: fc.oneof(fc.integer({ min: 1, max: 2000 }), fc.double({ min: 1, max: 50, noNaN: true })),
};
const opening = { ttlSeconds: fc.integer({ min: 2, max: 60 }), owner: fc.string({ maxLength: 200 }) };
const work = () => "done";

/** A public function that takes options, called with them; it undoes its effects. */
type Call = (options: never, other: never) => Promise<unknown>;
const FUNCTIONS: readonly (readonly [
  name: string,
  call: Call,
  good: Record<string, fc.Arbitrary<unknown>>,
])[] = [
  ["cluster.session", (options) => cluster.session(options), wait],
  [
    "Session.open",
    async (options) => (await Session.open(cluster, options)).close(),
    { ...wait, ...opening },
  ],
  ["Session.adopt", (options, id) => Session.adopt(cluster, id, options), { ...wait, owner: opening.owner }],
  ["lock", async (options) => (await new Mutex(session, "junk").lock(options)).release(), wait],
  ["tryLock", async (options) => (await new Mutex(session, "junk").tryLock(options))?.release(), wait],
  [
    "withLock",
    (options, given) => new Mutex(session, "junk").withLock(given, options),
    { ...wait, reentrant: fc.boolean() },
  ],
  ["cluster.close", (options) => connect({ hosts: etcd.endpoints }).close(options), { drainMs: fc.nat() }],
];

/** The outcome of a call: "works", or the error; no later than `PATIENCE_MS`. */
async function ending(call: () => Promise<unknown>): Promise<unknown> {
  const promise = call();
  expect(promise).toBeInstanceOf(Promise);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, PATIENCE_MS, HANGS)));
  const ended = promise.then(
    () => "works",
    (reason: unknown) => reason,
  );
  return Promise.race([ended, late]).finally(() => clearTimeout(timer));
}

/**
 * An outcome that the options ask for (a valid time limit that expired, a nonexistent lease, the caller's own abort
 * reason), or a proper error.
 */
const isOrderly = (end: unknown): boolean =>
  end === "works" || end instanceof LeaseholdError || end instanceof CallersOwn || isMisuse(end);

describe.each(FUNCTIONS)("%s, whatever it is given,", (name, call, good) => {
  const other = name === "Session.adopt" ? fc.oneof(fc.bigInt(), junk) : fc.oneof(fc.constant(work), junk);

  // Random values need not include one of each.
  const examples: [object, unknown][] = [
    [{}, name === "Session.adopt" ? 7n : work],
    [{ nonsense: 1 }, work],
  ];

  test("does as asked or names the option that is wrong, and leaves no lease and no key", async () => {
    const ends = new Set<unknown>();
    await fc.assert(
      fc.asyncProperty(junkOptions(good), other, async (options, second) => {
        const end = await ending(() => call(options as never, second as never));

        ends.add(isMisuse(end) ? "misuse" : "taken");
        if (!isOrderly(end)) throw end;
      }),
      { ...RUNS, examples },
    );

    expect(ends).toEqual(new Set(["misuse", "taken"]));
    await expect.poll(() => leasesOf(etcd.member)).toEqual(new Set([session.leaseId]));
    await expect.poll(() => placesOf(etcd.member, "junk")).toEqual([]);
  });
});

describe("a lock, whatever it is asked,", () => {
  test("assertHeld() says that it is held, that too little time is left, or that the question is wrong", async () => {
    await using lock = await new Mutex(session, "asked").lock();

    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.double(), junk), async (atLeastMs) => {
        const end = await ending(() => Promise.resolve().then(() => lock.assertHeld(atLeastMs as number)));

        if (!isOrderly(end)) throw end;
        expect(lock.held).toBe(true);
      }),
      RUNS,
    );
  });

  test("session.close() of a session that is over takes nothing but an option that it knows", async () => {
    const closed = await Session.open(cluster);
    await closed.close();

    await fc.assert(
      fc.asyncProperty(junkOptions({ drainMs: fc.nat() }), async (options) => {
        const end = await ending(() => closed.close(options as never));

        if (end !== "works" && !isMisuse(end)) throw end;
      }),
      RUNS,
    );
  });
});
