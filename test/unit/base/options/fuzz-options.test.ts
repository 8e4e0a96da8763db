import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import {
  connect,
  FenceGate,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  StaleFenceError,
  whileHeld,
} from "../../../../src/index.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { isName } from "../../../support/fixtures/hostile-names.js";
import { isMisuse, junk, junkOptions } from "../../../support/fakes/junk.js";

const RUNS = { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 200) };

const lease = new FakeCluster().lease();
const session = Reflect.construct(Session, [lease]) as Session;
afterAll(() => lease.abandon());

/** The value, or `undefined` if the call rejects it as misuse; any other error is rethrown. */
function tried<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch (error) {
    if (!isMisuse(error)) throw error;
    return undefined;
  }
}

const hosts = fc.constantFrom("127.0.0.1:1", "http://localhost:2379", ["a:1", "[::1]:2"]);
const common = {
  hosts,
  credentials: fc.constant(undefined),
  auth: fc.record({ username: fc.constant("root"), password: fc.oneof(fc.constant("secret"), junk) }),
  requestTimeoutMs: fc.integer({ min: 100, max: 60_000 }),
  session: junkOptions({ ttlSeconds: fc.integer({ min: 2, max: 86_400 }), owner: fc.string() }),
};
const http2 = {
  transport: fc.constant("http2"),
  pingIntervalMs: fc.integer({ min: 5000, max: 3_600_000 }),
  pingTimeoutMs: fc.integer({ min: 100, max: 60_000 }),
  connectTimeoutMs: fc.integer({ min: 100, max: 60_000 }),
};
const etcd3 = { transport: fc.constant("etcd3") };
const connectOptions = fc.oneof(
  junkOptions({ ...common, ...http2 }),
  junkOptions({ ...common, ...etcd3 }),
  junkOptions({ ...common, ...http2, ...etcd3 }),
);

describe("whatever it is given,", () => {
  test("connect() makes a cluster, which can be closed, or names the option that is wrong", async () => {
    let made = 0;
    await fc.assert(
      fc.asyncProperty(connectOptions, async (options) => {
        const cluster = tried(() => connect(options as Parameters<typeof connect>[0]));
        if (cluster) made++;
        await cluster?.close();
      }),
      // Few of the options are all right.
      { numRuns: Math.max(1000, RUNS.numRuns) },
    );
    expect(made).toBeGreaterThan(0);
  });

  test("connect() takes hosts that it can name again, or says that they are wrong", () => {
    const host = fc.oneof(fc.webUrl(), fc.webAuthority({ withPort: true }), fc.ipV6(), fc.string(), junk);
    fc.assert(
      fc.property(fc.oneof(host, fc.array(host, { maxLength: 3 }), fc.sparseArray(host)), (given) => {
        const cluster = tried(() => connect({ hosts: given as string }));
        if (cluster) expect(connect({ hosts: cluster.hosts }).hosts).toStrictEqual(cluster.hosts);
      }),
      RUNS,
    );
  });

  test.each([
    ["Mutex", (source: unknown, name: unknown) => new Mutex(source as Session, name as string)],
    ["RwLock", (source: unknown, name: unknown) => new RwLock(source as Session, name as string)],
    ["Semaphore", (source: unknown, name: unknown) => new Semaphore(source as Session, name as string, 1)],
  ])(
    "new %s() takes exactly the names that the README allows, and no source but a Cluster or a Session",
    (_, make) => {
      const names = fc.oneof(
        fc.string({ unit: "binary", maxLength: 1030 }),
        fc.string({ unit: fc.constantFrom("/", "a", "\ud800", "\udc00", "\0", "💥"), maxLength: 6 }),
        junk,
      );
      fc.assert(
        fc.property(names, (name) => {
          const lock = tried(() => make(session, name));
          expect(lock?.name).toBe(typeof name === "string" && isName(name) ? name : undefined);
        }),
        RUNS,
      );
      fc.assert(
        fc.property(junk, (source) => {
          expect(tried(() => make(source, "jobs"))).toBeUndefined();
        }),
        RUNS,
      );
    },
  );

  test("new Semaphore() takes whole numbers of permits from 1 to 1000", () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.integer(), fc.integer({ min: -1, max: 1002 }), fc.double(), junk),
        (permits) => {
          const semaphore = tried(() => new Semaphore(session, "jobs", permits as number));
          const takes = Number.isInteger(permits) && (permits as number) >= 1 && (permits as number) <= 1000;
          expect(semaphore?.permits).toBe(takes ? permits : undefined);
        },
      ),
      RUNS,
    );
  });

  test("a FenceGate admits bigints in order, refuses stale ones, and takes nothing else", () => {
    const tokens = fc.array(fc.oneof(fc.bigInt(), fc.bigInt({ min: 0n, max: 9n }), junk), { maxLength: 8 });
    fc.assert(
      fc.property(fc.oneof(fc.bigInt(), fc.constant(undefined), junk), tokens, (start, given) => {
        const gate = tried(() => new FenceGate(start as bigint));
        let highest = gate?.highest ?? 0n;
        for (const token of given) {
          const stale = typeof token === "bigint" && token >= 0n && token < highest;
          const admit = () => tried(() => gate?.admit(token as bigint));
          if (gate && stale) expect(admit).toThrow(StaleFenceError);
          else admit();
          if (typeof token === "bigint" && token > highest) highest = token;
          if (gate) expect(gate.highest).toBe(highest);
        }
      }),
      RUNS,
    );
  });

  test("whileHeld() makes a guard of a key and a create revision, or says what is wrong", () => {
    const holds = fc.oneof(
      junk,
      fc.record({ key: fc.oneof(fc.string(), junk), revision: fc.oneof(fc.bigInt(), junk) }),
    );
    fc.assert(
      fc.property(holds, (hold) => {
        const guard = tried(() => whileHeld(hold as Parameters<typeof whileHeld>[0]));
        if (!guard) return;
        const { key, revision } = hold as { key: string; revision: bigint };
        expect(revision).toBeGreaterThan(0n);
        expect(guard).toEqual([key, "Create", "==", String(revision)]);
      }),
      RUNS,
    );
  });
});
