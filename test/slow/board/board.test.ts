// What a Board shows, against inspect() and list() at the same revision, under a random workload.
import { describe, expect, test } from "vitest";
import { Board, MAX_KEYS, TooManyKeysError, type BoardListener } from "../../../src/observe/board.js";
import { connect, Election, inspect, list, lockAll, Mutex, RwLock, Semaphore } from "../../../src/index.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const two = twoSessions(30);
const PATIENCE = { timeout: 15_000 };

const ignore: BoardListener = { changed: () => {}, failed: () => {} };

/** Resolves with the board after its first read. */
function opened(prefix: string, cluster = two.cluster, listener = ignore): Promise<Board> {
  return new Promise((resolve, reject) => {
    const board = Board.open(cluster, prefix, {
      changed: (names, revision) => {
        resolve(board);
        listener.changed(names, revision);
      },
      failed: (error) => {
        reject(error);
        listener.failed(error);
      },
    });
  });
}

interface Entry {
  readonly key: string;
  readonly createRevision: bigint;
  readonly leaseId: bigint;
  readonly owner: string | undefined;
  readonly since: Date | undefined;
}

const plainEntry = ({ key, createRevision, leaseId, owner, since }: Entry) =>
  [key, createRevision, leaseId, owner, since?.getTime()].join(" ");

/** A board as comparable text. */
function pictureOf(board: Board) {
  return [...board.names()].sort().map((name) => {
    const { kind, holders, waiters, waiterCount } = board.queue(name)!;
    expect(waiterCount).toBe(waiters.length);
    return { name, kind, holders: holders.map(plainEntry), waiters: waiters.map(plainEntry) };
  });
}

/** The same by list() and inspect(); undefined if something has changed meanwhile. */
async function truthOf(prefix: string) {
  const { locks, revision } = await list(two.cluster, prefix, { limit: 1000 });
  const states = await Promise.all(locks.map(({ name }) => inspect(two.cluster, name, { limit: 1000 })));
  if (states.some((state) => state.revision !== revision)) return undefined;
  const picture = states.map(({ name, kind, holders, waiters }) => {
    const entries = (list: typeof holders) =>
      list.map((each) => plainEntry({ ...each, createRevision: each.revision }));
    return { name, kind, holders: entries(holders), waiters: entries(waiters) };
  });
  return { revision, picture: picture.sort((a, b) => (a.name < b.name ? -1 : 1)) };
}

async function expectTruth(board: Board, prefix: string) {
  await expect
    .poll(async () => {
      const truth = await truthOf(prefix);
      if (truth === undefined) return "it changes";
      // An unrelated revision is no event of this board.
      if (board.revision > truth.revision) return "the board is newer";
      return JSON.stringify(pictureOf(board)) === JSON.stringify(truth.picture) ? "same" : "different";
    }, PATIENCE)
    .toBe("same");
  expect(pictureOf(board)).toEqual((await truthOf(prefix))?.picture);
}

const remove = (key: string) =>
  two.etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(key).toString("base64") });

describe("Board", () => {
  test("equals inspect() and list() at every stop of a random workload of all kinds of locks and foreign keys", async () => {
    const prefix = "all/";
    const board = await opened(prefix);
    const names = ["m", "m/nested", "m/nested/deep", "s", "rw", "rw/read", "e"].map((each) => prefix + each);
    const keys = new Set<string>();
    const lease = await grantLease(two.etcd.member, 300);
    const values = ["", '{"permits":2}', '{"permits":3,"owner":"a","since":"2031-01-01","id":"x"}', "text"];
    let seed = 12345;
    const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
    for (let round = 0; round < 12; round++) {
      for (let n = 0; n < 25; n++) {
        const folder = ["", "", "read/", "write/", "read/x/"][random(5)];
        const key = `${names[random(names.length)]}/${folder}${(random(30) + 256).toString(16)}`;
        if (random(3) === 0 && keys.size > 0) {
          const gone = [...keys][random(keys.size)]!;
          keys.delete(gone);
          await remove(gone);
        } else {
          const more = random(4) === 0 ? [key, `${key}-2`] : [key];
          for (const each of more) keys.add(each);
          await putKeys(two.etcd.member, more, { leaseId: lease, value: values[random(values.length)]! });
        }
      }
      await expectTruth(board, prefix);
    }
    for (const key of keys) await remove(key);
    await expectTruth(board, prefix);
    expect(board.size).toBe(0);
    board.stop();
  });

  test("equals inspect() for the library's own locks, and counts their grants", async () => {
    const prefix = "own/";
    const board = await opened(prefix);
    const mutex = [new Mutex(two.holder, "own/m"), new Mutex(two.session, "own/m")];
    const lock = await mutex[0]!.lock();
    const waiting = mutex[1]!.lock();
    const permit = await new Semaphore(two.holder, "own/s", 2).acquire();
    const read = await new RwLock(two.holder, "own/rw").readLock();
    const leadership = await new Election(two.session, "own/e").campaign("web-1");
    const several = await lockAll(two.session, ["own/a", "own/b"]);
    await two.queued("own/m", 2);
    await leadership.proclaim("web-2");
    await expectTruth(board, prefix);
    expect(board.queue("own/m")).toMatchObject({ kind: "mutex", grants: 1, waiterCount: 1 });
    expect(board.queue("own/e")).toMatchObject({ kind: "election", grants: 1 });
    expect(board.handOvers).toBe(6);

    await lock.release();
    await (await waiting).release();
    await Promise.all([permit, read, several].map((hold) => hold.release()));
    await leadership.resign();
    await expect.poll(() => board.size, PATIENCE).toBe(0);

    expect(board.handOvers).toBe(7);
    expect(board.history("own/m").map(({ kind }) => kind)).toEqual([
      "granted",
      "released",
      "granted",
      expect.stringMatching(/released|ended/) as string,
    ]);
    board.stop();
  });

  test("says of a hold that ended with all other keys of its lease only that these ended together", async () => {
    const lease = await grantLease(two.etcd.member, 300);
    await putKeys(two.etcd.member, ["lost/a/1f", "lost/b/1f"], { leaseId: lease });
    const board = await opened("lost/");

    await two.etcd.etcdctl(["lease", "revoke", lease.toString(16)]);
    await expect.poll(() => board.size, PATIENCE).toBe(0);

    for (const name of ["lost/a", "lost/b"])
      expect(board.history(name)).toMatchObject([{ kind: "ended", together: 2, entry: { leaseId: lease } }]);
    board.stop();
  });

  test("follows what an outage hid, also where etcd has compacted it", async () => {
    const prefix = "outage/";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
    await putKeys(two.etcd.member, ["outage/a/1f", "outage/a/2f", "outage/b/1f"]);
    const board = await opened(prefix, cluster);
    for (const compacts of [false, true]) {
      await proxy.mode("refuse");
      await remove("outage/a/1f");
      await putKeys(two.etcd.member, ["outage/c/1f", `outage/c/${compacts ? 3 : 2}f`, "outage/a/1f"]);
      const { revision } = await two.etcd.member.status();
      if (compacts) await two.etcd.etcdctl(["compact", String(revision)]);
      await proxy.mode("pass");
      await expectTruth(board, prefix);
    }
    expect(board.queue("outage/a")!.grants).toBeGreaterThan(0);
    board.stop();
  });

  test("reads 1,500 keys in pages while they change, and misses nothing", async () => {
    const prefix = "many/";
    const keys = Array.from({ length: 1500 }, (_, n) => `many/${n % 100}/${(n + 256).toString(16)}`);
    await putKeys(two.etcd.member, keys);
    const opening = opened(prefix);
    await Promise.all(keys.slice(0, 200).map((key) => remove(key)));
    const board = await opening;

    await expectTruth(board, prefix);
    expect(board.size).toBe(100);
    board.stop();
  });

  test("fails with an honest error when there are more keys than it has room for, at once and later", async () => {
    const keys = Array.from({ length: MAX_KEYS }, (_, n) => `full/${n % 50}/${(n + 256).toString(16)}`);
    await putKeys(two.etcd.member, keys);
    const failures: Error[] = [];
    const board = await opened("full/", two.cluster, { ...ignore, failed: (error) => failures.push(error) });
    expect(board.size).toBe(50);

    await putKeys(two.etcd.member, ["full/1/1f"]);

    await expect.poll(() => failures, PATIENCE).toHaveLength(1);
    expect(failures[0]).toBeInstanceOf(TooManyKeysError);
    await expect(opened("full/")).rejects.toThrow('more than 20000 keys under "full/": narrow the prefix');
  });

  test("fails with the cluster's end, and reports nothing after stop()", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    const failures: Error[] = [];
    await opened("ends/", cluster, { changed: () => {}, failed: (error) => failures.push(error) });
    const calls: string[] = [];
    const stopped = await opened("ends/", two.cluster, { ...ignore, changed: () => calls.push("changed") });
    stopped.stop();
    const other = await opened("ends/");

    await putKeys(two.etcd.member, ["ends/a/1f"]);
    await expect.poll(() => other.size, PATIENCE).toBe(1);
    await cluster.close();

    expect(failures).toMatchObject([{ code: "SESSION_CLOSED" }]);
    expect(calls).toEqual(["changed"]);
    other.stop();
    expect(() => Board.open(two.cluster, "\ud800", ignore)).toThrow(RangeError);
  });
});
