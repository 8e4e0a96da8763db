import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, type LockTimeoutError, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { hostileNames, namesLike } from "../../support/fixtures/hostile-names.js";

const RUNS = { numRuns: 40, endOnFailure: true };
/** Much longer than needed: a call that takes this long would wait forever. */
const LIMIT = { timeoutMs: 5000 };
const base64 = (text: string) => Buffer.from(text).toString("base64");

interface Kv {
  readonly key: string;
  readonly mod: bigint;
}

let etcd: EtcdCluster;
let cluster: Cluster;
/** Like two processes. */
let one: Session;
let two: Session;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  [one, two] = await Promise.all([Session.open(cluster), Session.open(cluster)]);
}, 60_000);
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const revisionNow = async () => (await etcd.member.status()).revision;

/** Every key that existed at that revision, by its bytes as hex. */
async function keysAt(revision: bigint): Promise<Kv[]> {
  const everything = { key: base64("\0"), range_end: base64("\0"), revision: String(revision) };
  const { kvs = [] } = (await etcd.member.gateway("/v3/kv/range", everything)) as {
    kvs?: { key: string; mod_revision: string }[];
  };
  return kvs.map(({ key, mod_revision }) => ({
    key: Buffer.from(key, "base64").toString("hex"),
    mod: BigInt(mod_revision),
  }));
}

/** All keys that existed at any time since `start`. */
async function keysSince(start: bigint): Promise<Set<string>> {
  const seen = new Set<string>();
  for (let revision = start; revision <= (await revisionNow()); revision++)
    for (const { key } of await keysAt(revision)) seen.add(key);
  return seen;
}

/** Whether a session may create `key` for `name`, compared byte by byte. */
function belongs(key: string, name: string): boolean {
  const prefix = Buffer.from(`${name}/`).toString("hex");
  if (!key.startsWith(prefix)) return false;
  const rest = Buffer.from(key.slice(prefix.length), "hex").toString();
  return [one, two].some(({ leaseId }) => {
    const id = leaseId.toString(16);
    return rest === id || new RegExp(`^${id}-[1-9][0-9]*$`).test(rest);
  });
}

/** Another client's key in every position next to the queue of `name`, and none in the queue itself. */
const neighboursOf = (name: string) => [name, `${name}0`, `${name}.`, `${name}-2`, `${name}\0/x`];

async function put(key: string): Promise<void> {
  await etcd.member.gateway("/v3/kv/put", { key: base64(key), value: base64("somebody else's") });
}

/** Each case begins with it: a key that another client wrote for an earlier one could stand in the queue of its name. */
async function deleteAll(): Promise<void> {
  await etcd.member.gateway("/v3/kv/deleterange", { key: base64("\0"), range_end: base64("\0") });
}

/** Whether `outer` waits for a holder of `inner`: the same name, or one nested in it. */
const sharesRange = (outer: string, inner: string) => inner === outer || inner.startsWith(`${outer}/`);

describe("whatever bytes a name has,", () => {
  test("its keys are the name, a slash and the lease, and nobody else's key is touched", async () => {
    await fc.assert(
      fc.asyncProperty(hostileNames, async (name) => {
        await deleteAll();
        for (const key of neighboursOf(name)) await put(key);
        const start = await revisionNow();
        const before = await keysAt(start);

        const locks = [one, two, one].map((session) =>
          new Mutex(session, name).withLock((lock) => lock.key, LIMIT),
        );
        const tries = [one, two].map(async (session) =>
          (await new Mutex(session, name).tryLock())?.release(),
        );
        await Promise.all([...locks, ...tries]);

        const others = new Set(before.map(({ key }) => key));
        const made = [...(await keysSince(start))].filter((key) => !others.has(key));
        expect(made.length).toBeGreaterThan(0);
        expect(made.filter((key) => !belongs(key, name))).toEqual([]);
        expect(await keysAt(await revisionNow())).toEqual(before);
      }),
      RUNS,
    );
  }, 60_000);

  test("it excludes its own holders and those of names nested in it, and no name that only looks like it", async () => {
    await fc.assert(
      fc.asyncProperty(hostileNames, fc.nat(), async (name, pick) => {
        await deleteAll();
        const alike = namesLike(name, one.leaseId);
        const other = alike[pick % alike.length]!;
        const free = [];
        for (const [held, asked] of [
          [name, other],
          [other, name],
        ] as const) {
          const lock = await new Mutex(one, held).lock(LIMIT);
          const taken = await new Mutex(two, asked).tryLock();
          await Promise.all([taken?.release(), lock.release()]);
          free.push(taken !== undefined);
        }

        const expected = [!sharesRange(other, name), !sharesRange(name, other)];
        expect({ other, free }).toEqual({ other, free: expected });
      }),
      { ...RUNS, numRuns: 150 },
    );
  }, 60_000);

  test("waiters of look-alikes are woken by their own queue only", async () => {
    await fc.assert(
      fc.asyncProperty(hostileNames, async (name) => {
        await deleteAll();
        const unrelated = namesLike(name, one.leaseId).filter(
          (other) => !sharesRange(other, name) && !sharesRange(name, other),
        );
        const held = await new Mutex(one, name).lock(LIMIT);
        const waiting = new Mutex(two, name).lock(LIMIT);
        waiting.catch(() => "told below");

        for (const other of unrelated) await new Mutex(one, other).withLock(() => undefined, LIMIT);
        const early = await Promise.race([waiting, Promise.resolve("waiting")]);
        await held.release();
        const next = await waiting;
        await next.release();

        expect(early).toBe("waiting");
        expect(next.fence).toBeGreaterThan(held.fence);
      }),
      RUNS,
    );
  }, 60_000);
});

test("the owner that another client wrote cannot forge a line of the log, nor color it", async () => {
  const owner = `evil\u001b[31m\nFATAL forged line\u2028\u202e${"x".repeat(5000)}`;
  await etcd.etcdctl(["put", "forged/7", JSON.stringify({ owner })]);

  const error = await new Mutex(one, "forged").lock({ timeoutMs: 500 }).then(
    () => expect.unreachable("granted"),
    (reason: unknown) => reason as LockTimeoutError,
  );

  expect(error.message).toContain("held by evil\\u001b[31m\\u000aFATAL forged line\\u2028\\u202exxx");
  expect(error.message.length).toBeLessThan(400);
  expect(error.stack?.split("\n")[0]).toBe(`LockTimeoutError: ${error.message}`);
  const shown = error.holder?.owner ?? "";
  expect(Buffer.byteLength(shown)).toBe(256);
  expect(owner.startsWith(shown)).toBe(true);
  await etcd.etcdctl(["del", "forged/7"]);
});
