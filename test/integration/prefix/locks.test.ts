// connect({ prefix }): every kind of lock, beside a cluster without a prefix on the same etcd.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  DeadlockError,
  Election,
  forceRelease,
  inspect,
  lead,
  type Leadership,
  lockAll,
  LockLostError,
  lockName,
  LockTimeoutError,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  type WebLock,
  whileHeld,
} from "../../../src/index.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { encode } from "../../support/clients/gateway-text.js";
import { type KeysAt, keysAt } from "../../support/clients/keys-at.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const PREFIX = "prod/";
const LIMIT = { timeoutMs: 20_000 };

let etcd: EtcdCluster;
let keys: KeysAt;
/** With the prefix. */
let prod: Cluster;
/** Another one with it, as of another process. */
let peer: Cluster;
/** Without a prefix. */
let plain: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  keys = keysAt(etcd.member);
}, 60_000);
afterAll(() => etcd.stop());
beforeEach(() => {
  const session = { ttlSeconds: 10 };
  prod = connect({ hosts: etcd.endpoints, prefix: PREFIX, session });
  peer = connect({ hosts: etcd.endpoints, prefix: PREFIX, session });
  plain = connect({ hosts: etcd.endpoints, session });
});
afterEach(async () => {
  await Promise.all([prod, peer, plain].map((cluster) => cluster.close({ drainMs: 0 })));
  expect(await keys("")).toEqual([]);
});

/** What a lock says of itself while it is held. */
interface Held {
  readonly keys: readonly string[];
  readonly names: readonly string[];
  release(): unknown;
}

const held = (hold: { name: string; key: string; release(): Promise<void> }): Held => ({
  keys: [hold.key],
  names: [hold.name],
  release: () => hold.release(),
});

function leading(cluster: Cluster, name: string): Promise<Held> {
  return new Promise((resolve, reject) => {
    const stop = new AbortController();
    const work = async (leadership: Leadership): Promise<void> => {
      await new Promise<void>((done) => {
        const release = async () => {
          stop.abort();
          done();
          await ended;
        };
        resolve({ keys: [leadership.key], names: [leadership.name], release });
      });
    };
    const ended = lead(cluster, name, work, { signal: stop.signal });
    ended.catch(reject);
  });
}

function webLock(cluster: Cluster, name: string, mode: "exclusive" | "shared"): Promise<Held> {
  return new Promise((resolve, reject) => {
    const manager = new ClusterLockManager(cluster);
    const work = (lock: WebLock | null): Promise<void> =>
      new Promise((done) => {
        const release = async () => {
          done();
          await ended;
          await manager.close();
        };
        resolve({ keys: [lock!.key], names: [lock!.name], release });
      });
    const ended = manager.request(name, { mode }, work);
    ended.catch(reject);
  });
}

const webName = (name: string) => `web-locks/${Buffer.from(name, "utf16le").toString("base64url")}`;

/** How to take a lock, and the directories in which its keys are then, relative to the prefix. */
type Kind = readonly [
  title: string,
  take: (cluster: Cluster, name: string) => Promise<Held>,
  directories: (name: string) => readonly string[],
];
const itself = (name: string) => [name];
const kinds: readonly Kind[] = [
  ["lock() of a Mutex", async (cluster, name) => held(await new Mutex(cluster, name).lock(LIMIT)), itself],
  [
    "tryLock() of a Mutex",
    async (cluster, name) => held((await new Mutex(cluster, name).tryLock())!),
    itself,
  ],
  [
    "writeLock() of an RwLock",
    async (cluster, name) => held(await new RwLock(cluster, name).writeLock(LIMIT)),
    (name) => [`${name}/write`],
  ],
  [
    "readLock() of an RwLock",
    async (cluster, name) => held(await new RwLock(cluster, name).readLock(LIMIT)),
    (name) => [`${name}/read`],
  ],
  [
    "acquire() of a Semaphore",
    async (cluster, name) => held(await new Semaphore(cluster, name, 1).acquire(LIMIT)),
    itself,
  ],
  [
    "tryAcquire() of a Semaphore",
    async (cluster, name) => held((await new Semaphore(cluster, name, 1).tryAcquire())!),
    itself,
  ],
  [
    "lockAll()",
    async (cluster, name) => lockAll(cluster, [`${name}/b`, `${name}/a`], LIMIT),
    (name) => [`${name}/a`, `${name}/b`],
  ],
  [
    "campaign() of an Election",
    async (cluster, name) => held(await new Election(cluster, name).campaign("me", LIMIT)),
    itself,
  ],
  ["lead()", leading, itself],
  [
    "an exclusive web lock",
    (cluster, name) => webLock(cluster, name, "exclusive"),
    (name) => [`${webName(name)}/write`],
  ],
  [
    "a shared web lock",
    (cluster, name) => webLock(cluster, name, "shared"),
    (name) => [`${webName(name)}/read`],
  ],
];

describe("with connect({ prefix })", () => {
  test.each(kinds)(
    "%s has its keys under the prefix, and excludes no cluster without it",
    async (title, take, directories) => {
      const name = lockName`kinds/${title}`;
      const other = await take(plain, name);
      const others = await keys("");

      const mine = await take(prod, name);

      const directoryOf = (key: string) => key.replace(/\/[0-9a-f]+$/, "");
      expect([...mine.keys].sort()).toEqual(await keys(PREFIX));
      expect([...mine.keys].sort().map(directoryOf)).toEqual(directories(name).map((each) => PREFIX + each));
      expect([...other.keys].sort()).toEqual(others);
      expect(mine.names).toEqual(other.names);
      expect(await keys("")).toEqual([...others, ...mine.keys].sort());
      await mine.release();
      expect(await keys("")).toEqual(others);
      await other.release();
    },
  );

  test.each([
    ["a Mutex", async (cluster: Cluster, name: string) => new Mutex(cluster, name).lock(LIMIT)],
    ["an RwLock", async (cluster: Cluster, name: string) => new RwLock(cluster, name).writeLock(LIMIT)],
    ["a Semaphore", async (cluster: Cluster, name: string) => new Semaphore(cluster, name, 1).acquire(LIMIT)],
    ["lockAll()", async (cluster: Cluster, name: string) => lockAll(cluster, [name, `${name}-2`], LIMIT)],
    [
      "an Election",
      async (cluster: Cluster, name: string) => new Election(cluster, name).campaign("x", LIMIT),
    ],
  ])("waiters of %s hold in the order in which they came", async (title, take) => {
    const name = lockName`order/${title}`;
    const first = await take(prod, name);
    const waiting = [];
    for (const cluster of [peer, prod, peer]) {
      waiting.push(take(cluster, name));
      await expect.poll(() => keys(`${PREFIX}${name}/`)).toHaveLength(waiting.length + 1);
    }
    const fences = [first.revision];

    await first.release();
    for (const next of waiting) {
      const lock = await next;
      fences.push(lock.revision);
      await lock.release();
    }

    expect(fences).toEqual([...fences].sort((a, b) => (a < b ? -1 : 1)));
  });

  test("a wait that times out names the holder, with its complete key", async () => {
    const lock = await new Mutex(prod, "late").lock();

    const error = await reasonOf(new Mutex(peer, "late").lock({ timeoutMs: 1000 }));

    expect(error).toBeInstanceOf(LockTimeoutError);
    expect(error).toMatchObject({
      lockName: "late",
      ahead: 1,
      holder: { name: "late", key: lock.key, revision: lock.fence },
    });
    await lock.release();
  });

  test("a holder learns that its key was deleted, by the complete key in the error", async () => {
    const lock = await new Mutex(prod, "deleted").lock({});
    const leadership = await new Election(prod, "deleted-too").campaign("x");

    for (const hold of [lock, leadership]) {
      const lost = new Promise((resolve) => hold.signal.addEventListener("abort", resolve, { once: true }));
      await etcd.member.gateway("/v3/kv/deleterange", { key: encode(hold.key) });
      await lost;

      expect(hold.signal.reason).toBeInstanceOf(LockLostError);
      expect(hold.signal.reason).toMatchObject({ lockName: hold.name, key: hold.key, loss: "deleted" });
    }
  });

  test("a leader proclaims under its own key, and observers of the prefix see it", async () => {
    const election = new Election(prod, "proclaim");
    const leadership = await election.campaign("one");
    const seen: (string | undefined)[] = [];
    const observing = (async () => {
      for await (const leader of new Election(peer, "proclaim").observe()) {
        seen.push(leader && `${leader.key} ${leader.value}`);
        if (leader === undefined) return;
        if (leader.value === "one") await leadership.proclaim("two");
        else await leadership.resign();
      }
    })();
    await observing;

    expect(seen).toEqual([`${leadership.key} one`, `${leadership.key} two`, undefined]);
    expect(await new Election(plain, "proclaim").leader()).toBeUndefined();
  });

  test("an exclusive web lock is stolen under the same prefix only", async () => {
    const mine = new ClusterLockManager(prod);
    const theirs = new ClusterLockManager(plain);
    const until = (manager: ClusterLockManager) => {
      let done = () => {};
      const granted = new Promise<Promise<unknown>>((resolve) => {
        const ended = manager.request("stolen", () => {
          resolve({ ended } as never);
          return new Promise<void>((end) => (done = end));
        });
        ended.catch(() => undefined);
      });
      return { granted: granted as unknown as Promise<{ ended: Promise<unknown> }>, done: () => done() };
    };
    const [robbed, spared] = [until(mine), until(theirs)];
    const [{ ended }] = await Promise.all([robbed.granted, spared.granted]);

    await new ClusterLockManager(peer).request("stolen", { steal: true }, async () => {
      expect(await reasonOf(ended)).toMatchObject({ name: "AbortError" });
      expect((await theirs.query()).held).toHaveLength(1);
      expect((await mine.query()).held).toHaveLength(1);
    });

    spared.done();
    await Promise.all([mine.close(), theirs.close()]);
  });

  test("a hold guards a transaction of the user by whileHeld()", async () => {
    const lock = await new Mutex(prod, "guard").lock();
    const write = async () => {
      const [key, target, , revision] = whileHeld(lock);
      const compare = [
        { key: encode(key), target: target.toUpperCase(), result: "EQUAL", create_revision: revision },
      ];
      const request_put = { key: encode(lock.key), value: encode("written"), ignore_lease: true };
      const { succeeded = false } = (await etcd.member.gateway("/v3/kv/txn", {
        compare,
        success: [{ request_put }],
      })) as { succeeded?: boolean };
      return succeeded;
    };

    expect(await write()).toBe(true);
    await lock.release();
    expect(await write()).toBe(false);
  });

  test("a session is adopted with its entry, key and fence", async () => {
    const session = await Session.open(prod, { ttlSeconds: 10 });
    const lock = await new Mutex(session, "adopted").lock();
    const leaseId = await session.orphan();

    const adopted = await Session.adopt(peer, leaseId);
    const again = await new Mutex(adopted, "adopted").lock(LIMIT);

    expect(again).toMatchObject({ name: "adopted", key: lock.key, fence: lock.fence });
    await again.release();
    await adopted.close();
  });

  test("the sweep of late keys deletes those under the prefix, and spares the rest of the lease", async () => {
    const session = await Session.open(prod, { ttlSeconds: 2 });
    const lease = session.leaseId;
    const value = encode(JSON.stringify({ owner: "late", since: new Date().toISOString(), id: "late" }));
    const hex = lease.toString(16);
    const put = (key: string) =>
      etcd.member.gateway("/v3/kv/put", { key: encode(key), value, lease: lease.toString() });
    await put(`${PREFIX}stray/${hex}`);
    await put(`stray/${hex}`);

    // After a release, the session lists the keys of its lease.
    await new Mutex(session, "swept").withLock(() => undefined);

    await expect.poll(() => keys("")).toEqual([`stray/${hex}`]);
    await session.close();
  });

  test("forceRelease() deletes a key that is no text, with the prefix and without", async () => {
    for (const cluster of [prod, plain]) {
      const prefix = cluster === prod ? PREFIX : "";
      const key = Buffer.from(`${prefix}binary/\xff`, "latin1").toString("base64");
      await etcd.member.gateway("/v3/kv/put", { key });

      const [contender] = (await inspect(cluster, "binary")).holders;

      expect(contender).toMatchObject({ name: "binary", key: `${prefix}binary/\ufffd` });
      expect(await forceRelease(cluster, contender!)).toBe(contender);
      expect(await keys("")).toEqual([]);
    }
  });

  test("reentrance, deadlock and tryLock see the locks of their own cluster only", async () => {
    const [mine, theirs] = [new Mutex(prod, "re"), new Mutex(plain, "re")];

    await mine.withLock(async () => {
      await theirs.withLock(() => undefined, LIMIT);
      await mine.withLock(() => undefined, { ...LIMIT, reentrant: true });
      expect(await reasonOf(mine.lock(LIMIT))).toBeInstanceOf(DeadlockError);
      expect(await new Mutex(peer, "re").tryLock()).toBeUndefined();
    });
  });

  test("a prefix that begins with another one has its queues among the other's names", async () => {
    await using inner = connect({ hosts: etcd.endpoints, prefix: "prod/eu/" });
    const lock = await new Mutex(inner, "jobs").lock();

    expect(await new Mutex(prod, "eu/jobs").tryLock()).toBeUndefined();
    expect(await new Mutex(plain, "prod/eu/jobs").tryLock()).toBeUndefined();
    await lock.release();
  });

  test.each(["/", "/service/locks/", "é 💥/"])("the prefix %j works", async (prefix) => {
    await using cluster = connect({ hosts: etcd.endpoints, prefix });

    await new Mutex(cluster, "jobs").withLock(async ({ key, name }) => {
      expect(name).toBe("jobs");
      expect(key.startsWith(`${prefix}jobs/`)).toBe(true);
      expect(await keys("")).toEqual([key]);
    });
  });
});

describe("`etcdctl lock prod/jobs` shares the queue of `jobs` behind the prefix prod/:", () => {
  test("leasehold waits for etcdctl", async () => {
    await using etcdctl = new EtcdctlLock(etcd, "prod/jobs");
    const theirs = await etcdctl.held;
    const mutex = new Mutex(prod, "jobs");

    expect(await mutex.tryLock()).toBeUndefined();
    const waiting = mutex.lock(LIMIT);
    await expect.poll(() => keys("prod/jobs/")).toHaveLength(2);
    await new Mutex(plain, "jobs").withLock(() => undefined, LIMIT);
    await etcdctl.release();

    const lock = await waiting;
    expect(theirs).toMatch(/^prod\/jobs\//);
    expect(lock.name).toBe("jobs");
    await lock.release();
  });

  test("etcdctl waits for leasehold", async () => {
    const lock = await new Mutex(prod, "jobs").lock();
    await using etcdctl = new EtcdctlLock(etcd, "prod/jobs");
    await expect.poll(() => keys("prod/jobs/")).toHaveLength(2);
    expect(etcdctl.holds).toBe(false);

    await lock.release();

    expect(await etcdctl.held).toMatch(/^prod\/jobs\//);
    await etcdctl.release();
  });
});
