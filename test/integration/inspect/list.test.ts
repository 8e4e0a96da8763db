// list(): all names under a prefix, in pages of one revision, at a cost that does not depend on values.
import { describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  inspect,
  list,
  type LockPage,
  Mutex,
  RwLock,
  Semaphore,
  Session,
} from "../../../src/index.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { startWithUsers } from "../../support/fixtures/users.js";

const two = twoSessions(20);

async function pagesOf(
  prefix: string,
  { limit, cluster = two.cluster }: { limit?: number; cluster?: Cluster } = {},
): Promise<LockPage[]> {
  const pages = [await list(cluster, prefix, { limit })];
  for (let cursor = pages[0]!.cursor; cursor !== undefined; cursor = pages.at(-1)!.cursor)
    pages.push(await list(cluster, prefix, { limit, cursor }));
  return pages;
}

const locksIn = (pages: readonly LockPage[]) => pages.flatMap(({ locks }) => locks);
const namesIn = (pages: readonly LockPage[]) => locksIn(pages).map(({ name }) => name);

describe("a listing", () => {
  test("has each name once, with its kind, its first holder and the number of its waiters", async () => {
    const mutex = await new Mutex(two.holder, "list/kinds/m").lock();
    const waiting = new Mutex(two.session, "list/kinds/m").lock();
    const readers = [two.holder, two.session].map((each) => new RwLock(each, "list/kinds/rw"));
    const reads = await Promise.all(readers.map((each) => each.readLock()));
    const write = readers[0]!.writeLock();
    const permit = await new Semaphore(two.session, "list/kinds/s", 4).acquire();
    const leadership = await new Election(two.session, "list/kinds/e").campaign("x");
    await two.queued("list/kinds/m", 2);
    await two.queued("list/kinds/rw", 3);

    const { locks, cursor } = await list(two.cluster, "list/kinds/");

    expect(cursor).toBeUndefined();
    expect(locks).toMatchObject([
      { name: "list/kinds/e", kind: "election", holder: { key: leadership.key }, waiters: 0 },
      {
        name: "list/kinds/m",
        kind: "mutex",
        holder: { revision: mutex.fence, owner: "the holder" },
        waiters: 1,
      },
      { name: "list/kinds/rw", kind: "rwlock", holder: { state: "holding" }, waiters: 1 },
      { name: "list/kinds/s", kind: "semaphore", holder: { key: permit.key }, waiters: 0 },
    ]);
    await Promise.all([mutex, ...reads, permit].map((hold) => hold.release()));
    await Promise.all([(await waiting).release(), (await write).release(), leadership.resign()]);
  });

  test("counts the waiters of a semaphore by its permits, also beside delay keys", async () => {
    const session = await Session.open(two.cluster, { releaseDelayMs: 60_000 });
    const semaphore = new Semaphore(session, "list/delayed/s", 2);
    const permits = [await semaphore.acquire(), await semaphore.acquire()];
    const waiting = semaphore.acquire();
    await two.queued("list/delayed/s", 3);

    const { locks } = await list(two.cluster, "list/delayed/");

    expect(locks).toMatchObject([{ name: "list/delayed/s", holder: { key: permits[0]!.key }, waiters: 1 }]);
    await Promise.all(permits.map((permit) => permit.release()));
    await (await waiting).release();
    await session.close();
  });

  test("counts as waiters of a semaphore and of readers what takes none of their places", async () => {
    const { member } = two.etcd;
    const leaseId = await grantLease(member, 600);
    const said = { owner: "web-1:1", since: new Date().toISOString() };
    const permit = { leaseId, value: JSON.stringify({ ...said, id: "1", permits: 4 }) };
    await putKeys(member, ["list/mixed/s/6a1f", "list/mixed/s/6a1f-2"], { ...permit, atOnce: 1 });
    // Of a nested name, and of Go's mutex: both wait until all permits before them are given back.
    await putKeys(member, ["list/mixed/s/nested/6a1f", "list/mixed/s/6a20"], {
      ...{ leaseId, value: "", atOnce: 1 },
    });
    const keys = ["nested/6a1f", "6a1f", "6a20"].map((key) => `list/mixed/r/read/${key}`);
    await putKeys(member, [...keys, "list/mixed/r/write/6a1f"], { leaseId, value: "", atOnce: 1 });

    for (const name of ["list/mixed/s", "list/mixed/r"]) {
      const { locks } = await list(two.cluster, name, { limit: 1 });
      const { holders, total } = await inspect(two.cluster, name);

      expect(locks).toMatchObject([{ name, holder: { key: holders[0]!.key }, waiters: total.waiters }]);
      expect(total.waiters).toBe(name.endsWith("s") ? 2 : 1);
    }
  });

  test("has nested names by themselves, and their entries as waiters of the names above, on pages of any size", async () => {
    const keys = [
      "a/17/x/6a1f",
      "a/17/6a1f",
      "a/6a1f",
      "a/b/6a1f",
      "a/ff",
      "a/read/6a1f",
      "a/zz/6a1f",
      "ab/6a1f",
    ];
    await putKeys(
      two.etcd.member,
      keys.map((key) => `list/nested/${key}`),
      { atOnce: 1 },
    );
    const expected = ["a/17", "a/17/x", "a", "a/b", "a/zz", "ab"].map((name) => `list/nested/${name}`);

    for (const limit of [1, 2, 3, 5, 6, 100]) {
      const pages = await pagesOf("list/nested/", { limit });

      expect(namesIn(pages)).toEqual(expected);
      expect(pages.every(({ locks }) => locks.length <= limit)).toBe(true);
      expect(locksIn(pages)[2]).toMatchObject({ name: "list/nested/a", waiters: 6 });
    }
    expect(namesIn(await pagesOf("list/nested/a"))).toEqual(expected);
    expect(namesIn(await pagesOf("list/nested/a/"))).toEqual(expected.filter((name) => name.includes("a/")));
  });

  test("leaves out keys that belong to no name, and finds the names among any number of them", async () => {
    const { member } = two.etcd;
    await putKeys(
      member,
      Array.from({ length: 1200 }, (_, n) => `list/junk//${n}`),
    );
    const binary = Buffer.concat([Buffer.from("list/junk/"), Buffer.of(0xff, 0x2f, 1)]).toString("base64");
    await member.gateway("/v3/kv/put", { key: binary });
    await putKeys(member, ["list/junk/z/6a1f"], { value: "\u001b[2J".repeat(300_000) });

    const pages = await pagesOf("list/junk/", { limit: 1 });

    expect(locksIn(pages)).toMatchObject([
      { name: "list/junk/z", kind: "unknown", holder: { owner: undefined } },
    ]);
  });

  test("reads all pages at one revision, or says so by another one after etcd has compacted it", async () => {
    const name = (n: number) => `list/revision/${n}`;
    await putKeys(
      two.etcd.member,
      Array.from({ length: 6 }, (_, n) => `${name(n)}/6a1f`),
    );
    const first = await list(two.cluster, "list/revision/", { limit: 2 });
    await two.etcd.etcdctl(["del", "--prefix", "list/revision/"]);
    await putKeys(two.etcd.member, [`${name(9)}/6a1f`]);

    const second = await list(two.cluster, "list/revision/", { limit: 2, cursor: first.cursor });
    const { revision } = await two.etcd.member.status();
    await two.etcd.etcdctl(["compact", String(revision)]);
    const third = await list(two.cluster, "list/revision/", { limit: 2, cursor: second.cursor });

    expect(namesIn([first, second])).toEqual([0, 1, 2, 3].map(name));
    expect(second.revision).toBe(first.revision);
    expect(namesIn([third])).toEqual([name(9)]);
    expect(third.revision).toBeGreaterThan(first.revision);
    expect(third.cursor).toBeUndefined();
  });

  test("of everything in etcd has the prefix that is empty", async () => {
    await putKeys(two.etcd.member, ["\u0001first/6a1f", "\u{10ffff}last/6a1f"]);

    const names = namesIn(await pagesOf("", { limit: 1000 }));

    expect(names[0]).toBe("\u0001first");
    expect(names.at(-1)).toBe("\u{10ffff}last");
    expect(namesIn(await pagesOf("\u{10ffff}"))).toEqual(["\u{10ffff}last"]);
  });

  test("needs no more than to read the prefix", async () => {
    const users = await startWithUsers();
    try {
      const READER = { username: "reader", password: "reader-secret" };
      await users.addUser(READER, "jobs/", "read");
      await users.root("put", "jobs/a/6a1f", "");
      await using cluster = connect({ hosts: users.endpoints, auth: READER });

      expect(namesIn(await pagesOf("jobs/", { cluster }))).toEqual(["jobs/a"]);
      expect(await reasonOf(list(cluster, "jobs"))).toMatchObject({
        code: "ETCD_REFUSED",
        reason: "permission",
      });
    } finally {
      await users.stop();
    }
  });

  test("rejects a cursor that is none, or of another prefix", async () => {
    await putKeys(two.etcd.member, ["list/cursor/a/1", "list/cursor/b/1"]);
    const { cursor } = await list(two.cluster, "list/cursor/", { limit: 1 });

    expect(cursor).toBeDefined();
    expect(await reasonOf(list(two.cluster, "list/", { cursor }))).toBeInstanceOf(RangeError);
    expect(await reasonOf(list(two.cluster, "list/", { cursor: "x" }))).toBeInstanceOf(RangeError);
    expect(await reasonOf(list(two.cluster, "\ud800"))).toBeInstanceOf(RangeError);
  });
});

test("lists 2,000 locks and a queue of 1,000 waiters in few requests, without the values of the waiters", async () => {
  const { member } = two.etcd;
  const leaseId = await grantLease(member, 600);
  const value = JSON.stringify({ owner: "o".repeat(200), since: new Date().toISOString(), id: "x" });
  const locks = Array.from({ length: 2000 }, (_, n) => `list/many/${String(n).padStart(5, "0")}/6a1f`);
  const queue = Array.from({ length: 1001 }, (_, n) => `list/many/queue/${(n + 256).toString(16)}`);
  await putKeys(member, [...locks, ...queue], { leaseId, value });
  const asked = async () => {
    const metrics = [...(await member.metrics())];
    const sum = (part: RegExp) =>
      metrics.filter(([series]) => part.test(series)).reduce((total, [, count]) => total + count, 0);
    const requests = sum(/^grpc_server_handled_total.*"(Range|Txn)"/);
    return { requests, bytes: sum(/^etcd_network_client_grpc_sent_bytes_total/) };
  };
  const before = await asked();

  const pages = await pagesOf("list/many/", { limit: 500 });

  const after = await asked();
  const listed = locksIn(pages);
  expect(new Set(namesIn(pages)).size).toBe(2001);
  expect(listed.at(-1)).toMatchObject({ name: "list/many/queue", waiters: 1000 });
  expect(listed.slice(0, -1).every(({ waiters }) => waiters === 0)).toBe(true);
  expect(pages.length).toBeLessThanOrEqual(7);
  // For each page one request for keys and 16 for holders, and three for the keys of the queue.
  expect(after.requests - before.requests).toBeLessThanOrEqual(7 * 17 + 4);
  // The keys twice and the values of the holders, but not those of the waiters again.
  expect(after.bytes - before.bytes).toBeLessThan(2001 * (value.length + 300));
}, 60_000);
