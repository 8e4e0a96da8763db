// The channel `leasehold.hold.end`: each way in which a hold can end, made to happen.
import { once } from "node:events";
import { expect, test } from "vitest";
import {
  ClusterLockManager,
  connect,
  Election,
  type Hold,
  lead,
  type Leadership,
  lockAll,
  Mutex,
  Semaphore,
  Session,
} from "../../../src/index.js";
import { holdEndChannel } from "../../../src/base/telemetry/channels.js";
import type { HoldEndMessage } from "../../../src/base/telemetry/messages.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { Published } from "../../support/fixtures/published.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const OPTIONS = { label: "ends/:id" };
const two = twoSessions(10);
const openSession = (ttlSeconds = 10) => Session.open(two.cluster, { ttlSeconds, owner: "the loser" });
const ended = ({ signal }: Hold) => (signal.aborted ? undefined : once(signal, "abort"));

async function etcdctl(...args: string[]): Promise<void> {
  const { code, stderr } = await two.etcd.etcdctl(args);
  if (code !== 0) throw new Error(stderr);
}

test("a release, with what was held, by whom, and how long", async () => {
  const before = performance.now();
  const lock = await new Mutex(two.session, "released", OPTIONS).lock();
  const granted = performance.now();
  // A subscriber may come after the grant.
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  await new Mutex(two.session, "meanwhile").withLock(() => undefined);
  const released = performance.now();

  await lock.release();
  await lock.release();

  const [first, message, ...others] = ends.messages;
  expect(first).toMatchObject({ name: "meanwhile", label: undefined });
  expect(message).toMatchObject({ kind: "mutex", name: "released", names: ["released"], label: "ends/:id" });
  expect(message).toMatchObject({ key: lock.key, revision: lock.revision, fence: lock.fence });
  expect(message).toMatchObject({ owner: two.session.owner, leaseId: two.session.leaseId });
  expect(message).toMatchObject({ reason: "released", error: undefined });
  expect(message?.hosts).toBe(two.cluster.hosts);
  expect(message?.heldMs).toBeGreaterThanOrEqual(released - granted);
  expect(message?.heldMs).toBeLessThan(performance.now() - before);
  expect(others).toEqual([]);
});

test("the end of a shared hold has no fence", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);

  await new Semaphore(two.session, "permit", 2).withPermit(() => undefined);

  expect(ends.messages).toMatchObject([
    { kind: "permit", name: "permit", fence: undefined, reason: "released" },
  ]);
});

test("a key that somebody deletes while the hold lasts", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const lock = await new Mutex(two.session, "deleted").lock();

  await etcdctl("del", lock.key);
  await ended(lock);
  await reasonOf(lock.release());

  expect(ends.messages).toMatchObject([{ name: "deleted", reason: "deleted", error: { code: "LOCK_LOST" } }]);
});

test("a key that was deleted before a release, which alone shows it", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const held = await new Mutex(two.holder, "deleted-early").lock();
  const both = await Promise.all([
    new Mutex(two.session, "deleted-early/below").tryLock(),
    lockAll(two.session, ["deleted-early-2", "deleted-early-3"], OPTIONS),
  ]);
  const [lock, all] = both as [NonNullable<(typeof both)[0]>, (typeof both)[1]];

  await etcdctl("del", "--prefix", "deleted-early");
  const reasons = await Promise.all([reasonOf(lock.release()), reasonOf(all.release())]);

  expect(reasons).toMatchObject([{ loss: "deleted" }, { loss: "deleted" }]);
  await ended(held);
  const names = (message: HoldEndMessage) => [message.name, message.reason];
  await expect
    .poll(() => ends.messages.map(names).sort())
    .toEqual([
      ["deleted-early", "deleted"],
      ["deleted-early-2", "deleted"],
      ["deleted-early/below", "deleted"],
    ]);
});

test("a lease that another client revokes", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const session = await openSession();
  const lock = await new Mutex(session, "revoked").lock();

  await etcdctl("lease", "revoke", session.leaseId.toString(16));
  await ended(lock);

  await expect.poll(() => ends.messages).toHaveLength(1);
  expect(ends.messages).toMatchObject([
    { name: "revoked", owner: "the loser", reason: "revoked", error: { cause: { code: "SESSION_LOST" } } },
  ]);
});

test("a deadline that passes while the network swallows everything", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint });
  const session = await Session.open(cluster, { ttlSeconds: 3 });
  const lock = await new Mutex(session, "expired").lock();

  await proxy.mode("blackhole");
  await ended(lock);
  await proxy.mode("pass");

  expect(ends.messages).toMatchObject([
    { name: "expired", reason: "expired", error: lock.signal.reason as Error },
  ]);
  expect(ends.messages[0]?.hosts).toBe(cluster.hosts);
  expect(ends.messages[0]?.heldMs).toBeLessThan(3000);
});

test("a session that is closed", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const session = await openSession();
  await new Mutex(session, "closed").lock();

  await session.close({ drainMs: 0 });

  expect(ends.messages).toMatchObject([{ name: "closed", reason: "closed" }]);
});

test("a hold that outlasts its maxHoldMs, once, although it is released later", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const lock = await new Mutex(two.session, "max-hold", { ...OPTIONS, maxHoldMs: 50 }).lock();

  await ended(lock);
  await reasonOf(lock.release());

  const about = { name: "max-hold", label: "ends/:id", fence: lock.fence };
  expect(ends.messages).toMatchObject([{ ...about, reason: "max_hold", error: lock.signal.reason as Error }]);
  expect(ends.messages[0]?.heldMs).toBeGreaterThanOrEqual(50);
});

test("a term of lead whose work is not healthy, with the reason", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const stop = new AbortController();
  const healthy = () => Promise.reject(new Error("no disk"));
  const work = async ({ signal }: Leadership) => {
    await once(signal, "abort");
    stop.abort();
  };
  await lead(two.cluster, "ill", work, { healthy, everyMs: 10, signal: stop.signal });

  expect(ends.messages).toMatchObject([{ name: "ill", reason: "unhealthy" }]);
  expect(ends.messages[0]?.error).toMatchObject({ code: "LOCK_LOST", loss: "unhealthy" });
  expect((ends.messages[0]?.error?.cause as Error).message).toBe("no disk");
});

test("lockAll has one end, however many names it has", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const names = ["all/1", "all/2", "all/3"];
  const released = await lockAll(two.session, names, OPTIONS);
  await released.release();
  const lost = await lockAll(two.session, names, OPTIONS);
  await etcdctl("del", "all/2", "--prefix");
  await once(lost.signal, "abort");
  await reasonOf(lost.release());

  const common = { kind: "all", name: "all/1", names, label: "ends/:id" };
  expect(ends.messages).toMatchObject([
    {
      ...common,
      reason: "released",
      key: released.keys[0],
      revision: released.revision,
      fence: released.fence,
    },
    { ...common, reason: "deleted", fence: lost.fence, error: lost.signal.reason as Error },
  ]);
});

test("a leadership that is resigned", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  const leadership = await new Election(two.session, "election", OPTIONS).campaign("me");

  await leadership.resign();

  expect(ends.messages).toMatchObject([
    { kind: "leadership", name: "election", label: "ends/:id", fence: leadership.fence, reason: "released" },
  ]);
});

test("a Web Lock that ends with its callback, is stolen, or is left by its manager", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  await using locks = new ClusterLockManager(two.cluster);
  const left = new ClusterLockManager(two.cluster);
  const holding = (manager: ClusterLockManager, name: string) =>
    new Promise<void>((resolve) => {
      void reasonOf(manager.request(name, () => (resolve(), new Promise(() => {}))));
    });

  await locks.request("a callback", { mode: "shared" }, () => undefined);
  await holding(locks, "a victim");
  await locks.request("a victim", { steal: true }, () => undefined);
  await holding(left, "left");
  await left.close({ drainMs: 0 });

  const of = (wanted: string) =>
    ends.messages.filter(({ name }) => name === wanted).map(({ reason }) => reason);
  expect(ends.messages.every(({ kind }) => kind === "web_lock")).toBe(true);
  expect(of("a callback")).toEqual(["released"]);
  expect(of("a victim").sort()).toEqual(["deleted", "released"]);
  expect(of("left")).toEqual(["closed"]);
});

test("a lock that is granted after its caller gave up has no end event", async () => {
  using ends = new Published<HoldEndMessage>(holdEndChannel);
  await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint });
  const session = await Session.open(cluster, { ttlSeconds: 10 });
  proxy.delay(500, "answers");
  const giveUp = new AbortController();
  const { signal } = giveUp;
  const calls = [
    new Mutex(session, "unwanted/1").lock({ signal }),
    new Mutex(session, "unwanted/2").tryLock({ signal }),
    lockAll(session, ["unwanted/3", "unwanted/4"], { signal }),
  ].map(reasonOf);

  await two.queued("unwanted", 4);
  giveUp.abort();
  expect(await Promise.all(calls)).toEqual([signal.reason, signal.reason, signal.reason]);
  proxy.delay(0);
  await two.queued("unwanted", 0);
  await session.close();

  expect(ends.messages).toEqual([]);
});
