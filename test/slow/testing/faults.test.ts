// The faults of leasehold/testing, as sessions, holders and waiters see them.
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { connect, lockAll, LockLostError, Mutex, SessionLostError } from "../../../src/index.js";
import { memoryEtcd, startDevEtcd, startEtcd, type TestEtcd } from "../../../src/testing/start.js";

const reasonOf = async ({ signal }: { readonly signal: AbortSignal }): Promise<unknown> => {
  if (!signal.aborted) await once(signal, "abort");
  return signal.reason;
};

const STARTS = {
  startEtcd,
  memoryEtcd,
  startDevEtcd: ({ members }: { readonly members: 1 | 3 }) => startDevEtcd({ members, port: 0 }),
};

describe.each([
  { by: "startEtcd", members: 1 },
  { by: "startEtcd", members: 3 },
  { by: "memoryEtcd", members: 1 },
  { by: "memoryEtcd", members: 3 },
  { by: "startDevEtcd", members: 1 },
  { by: "startDevEtcd", members: 3 },
] as const)("with an etcd of $members members by $by()", ({ by, members }) => {
  let etcd: TestEtcd;
  const client = (ttlSeconds = 5) => connect({ hosts: etcd.hosts, session: { ttlSeconds } });

  beforeAll(async () => {
    etcd = await STARTS[by]({ members });
  }, 60_000);

  afterEach(async () => {
    await etcd.heal();
    await etcd.resume();
  });

  afterAll(async () => {
    await etcd.stop();
  });

  it("a holder loses its lock while etcd is paused longer than the TTL, and gets it again afterwards", async () => {
    await using cluster = client(2);
    const mutex = new Mutex(cluster, "paused");
    const lock = await mutex.lock();

    await etcd.pause();
    const reason = await reasonOf(lock);
    await etcd.resume();
    const again = await mutex.lock({ timeoutMs: 20_000 });

    expect(reason).toMatchObject({ code: "LOCK_LOST", loss: "expired" });
    expect(again.fence).toBeGreaterThan(lock.fence);
    await again.release();
  });

  it.each(["silent", "reset"] as const)(
    'a waiter stays in the queue over a link that is cut ("%s") and healed',
    async (how) => {
      await using holder = client(20);
      await using other = client(20);
      const lock = await new Mutex(holder, `cut/${how}`).lock();
      const waiting = new Mutex(other, `cut/${how}`).lock();
      await expect.poll(() => etcd.keys(`cut/${how}/`)).toHaveLength(2);

      await etcd.cut(undefined, { how });
      const refused = new Mutex(other, "cut/other").tryLock({ timeoutMs: 300 });
      await expect(refused).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
      expect(await etcd.keys("cut/other/")).toEqual([]);
      await etcd.heal();
      await lock.release();

      const next = await waiting;
      expect(next.held).toBe(true);
      await next.release();
    },
  );

  it("a lock is held over the restart of every member", async () => {
    await using cluster = client(20);
    const lock = await new Mutex(cluster, "restarted").lock();

    await etcd.restart();

    expect(await etcd.keys("restarted/")).toEqual([lock.key]);
    await lock.release();
    expect(await etcd.keys("restarted/")).toEqual([]);
  });

  // The rest is asked of one running member, however many there are.
  if (members === 1 && by === "startEtcd") return;

  it("a session whose lease was revoked by expire() is lost as revoked, and so are its locks", async () => {
    await using cluster = client();
    const session = await cluster.session();
    const lock = await new Mutex(session, "expired").lock();

    await etcd.expire(session);

    expect((await etcd.leftovers()).leases).not.toContain(session.leaseId);
    expect(await etcd.keys("expired/")).toEqual([]);
    const [lost, ended] = [await reasonOf(lock), await reasonOf(session)];
    expect(lost).toBeInstanceOf(LockLostError);
    // The signal aborts when the key is found gone. etcd says a moment later that its whole lease is.
    await expect.poll(() => lost).toMatchObject({ loss: "revoked" });
    expect(ended).toBeInstanceOf(SessionLostError);
  });

  it("expire() takes the ID of a lease, and says which lease etcd does not have", async () => {
    await using cluster = client();
    const { leaseId, ...session } = await cluster.session();

    await etcd.expire(leaseId);

    expect(session).toBeDefined();
    await expect(etcd.expire(leaseId)).rejects.toThrow(`etcd has no lease ${leaseId.toString(16)}`);
  });

  it("lose() resolves when the holder knows that its key was deleted; the next waiter holds", async () => {
    await using cluster = client();
    await using other = client();
    const lock = await new Mutex(cluster, "lost").lock();
    const waiting = new Mutex(other, "lost").lock();

    await etcd.lose(lock);

    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
    expect(lock.signal.reason).toMatchObject({ loss: "deleted" });
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
    await expect(etcd.lose(lock)).rejects.toThrow(`etcd has no key ${lock.key}`);
  });

  it("lose() takes a lock of several names", async () => {
    await using cluster = client();
    const both = await lockAll(cluster, ["both/a", "both/b"]);

    await etcd.lose(both);

    expect(both.signal.reason).toMatchObject({ loss: "deleted" });
  });

  it("isQuiet() is true when the clients are closed, and false while one has a lock or waits for it", async () => {
    const [cluster, other] = [client(), client()];
    const lock = await new Mutex(cluster, "quiet").lock();
    const waiting = new Mutex(other, "quiet").lock();
    waiting.catch(() => {});

    await expect.poll(async () => (await etcd.leftovers()).watches).toBeGreaterThan(0);
    const during = await etcd.isQuiet({ timeoutMs: 0 });
    const left = await etcd.leftovers();
    await lock.release();
    await (await waiting).release();
    await Promise.all([cluster.close(), other.close()]);

    expect(during).toBe(false);
    expect(left.keys).toContain(lock.key);
    expect(left.leases.length).toBeGreaterThanOrEqual(2);
    expect([await etcd.isQuiet({ timeoutMs: 10_000 }), await etcd.leftovers()]).toEqual([
      true,
      { keys: [], leases: [], watches: 0 },
    ]);
  });
});
