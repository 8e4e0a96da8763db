import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { printable } from "../../../src/base/util/printable.js";
import { connect, EtcdRefusedError, LockLostError, Mutex, Session } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { untilLeaseExpires } from "../../support/clients/lease-yardstick.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { ROOT, startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const TTL_SECONDS = 3;
const LIMIT = { timeoutMs: 5000 };
const READER = { username: "reader", password: "reader-secret" };
const WRITER = { username: "writer", password: "writer-secret" };
/** None of them is under `jobs/`, even if it looks similar. */
const FORBIDDEN = ["other", "job", "jobs0", "jobs-x/a", "Jobs/a", "x/jobs/a", "jobs\u0000/a"];

let etcd: UserEtcd;

const connectAs = (auth = WORKER, hosts: string | readonly string[] = etcd.endpoints) =>
  connect({ hosts, auth, requestTimeoutMs: 500, session: { ttlSeconds: TTL_SECONDS } });
const times = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));

beforeAll(async () => {
  etcd = await startWithUsers();
  await etcd.addUser(READER, "reader/", "read");
  await etcd.addUser(WRITER, "writer/", "write");
}, 60_000);
afterAll(() => etcd.stop());

describe("a user whose role covers one prefix", () => {
  test("gets its locks in order; a timeout names the holder and the number ahead", async () => {
    await using cluster = connectAs();
    const name = "jobs/order";
    const sessions = await Promise.all(times(3, (i) => Session.open(cluster, { owner: `worker ${i}` })));
    const lock = await new Mutex(sessions[0]!, name).lock();
    const served: number[] = [];
    const serve = (i: number) => new Mutex(sessions[i]!, name).withLock(() => served.push(i), LIMIT);

    const first = serve(1);
    await expect.poll(() => etcd.keysIn(name)).toHaveLength(2);
    const second = serve(2);
    await expect.poll(() => etcd.keysIn(name)).toHaveLength(3);
    const late = await reasonOf(new Mutex(cluster, name).lock({ timeoutMs: 2000 }));
    await lock.release();
    await Promise.all([first, second]);

    expect(served).toEqual([1, 2]);
    expect(late).toMatchObject({ code: "LOCK_TIMEOUT", ahead: 3, holder: { owner: "worker 0" } });
    // The key of the one that was late is deleted in the background.
    await expect.poll(() => etcd.keysIn(name)).toEqual([]);
  });

  test("learns at once, as holder or waiter, that its key was deleted", async () => {
    await using cluster = connectAs();
    const name = "jobs/deleted";
    const lock = await new Mutex(cluster, name).lock();
    const waiting = new Mutex(await Session.open(cluster), name).lock(LIMIT);
    await expect.poll(() => etcd.keysIn(name)).toHaveLength(2);

    await lock.release();
    const next = await waiting;
    const lost = new Promise((resolve) => next.signal.addEventListener("abort", resolve, { once: true }));
    await etcd.root("del", next.key);
    await lost;

    expect(next.signal.reason).toBeInstanceOf(LockLostError);
    expect(next.signal.reason).toMatchObject({ loss: "deleted" });
  });

  test("leaves no key of a request that etcd got late, though it may see no other key than its own", async () => {
    await using proxy = await startGrpcProxy({ port: etcd.etcd.member.clientPort });
    await using cluster = connectAs(WORKER, proxy.endpoint);
    const name = "jobs/late";
    const rule = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", when: takesPlace, times: 1 });
    const lock = await new Mutex(cluster, name).lock();
    await lock.release();

    rule.release();
    await rule.answered();

    await expect.poll(() => etcd.keysIn(name)).toEqual([]);
  });

  test("takes over an orphaned lease with what it holds", async () => {
    await using first = connectAs();
    await using second = connectAs();
    const session = await Session.open(first, { ttlSeconds: TTL_SECONDS });
    const lock = await new Mutex(session, "jobs/adopted").lock();

    const heir = await Session.adopt(second, await session.orphan());
    const taken = await new Mutex(heir, "jobs/adopted").lock(LIMIT);

    expect([taken.key, taken.fence]).toEqual([lock.key, lock.fence]);
    await taken.release();
  });
});

describe("a name that the role does not cover", () => {
  test("is refused by every call, with its name and the reason, and nothing is written", async () => {
    await using cluster = connectAs();
    const before = await etcd.keysUnder("");
    const calls = FORBIDDEN.flatMap((name) => {
      const mutex = new Mutex(cluster, name);
      return [mutex.lock(), mutex.tryLock(), mutex.withLock(() => "never")].map(async (call) => ({
        name,
        reason: await reasonOf(call),
      }));
    });

    for (const { name, reason } of await Promise.all(calls)) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ reason: "permission", host: etcd.endpoints[0] });
      expect((reason as Error).message).toContain(`join the queue of "${printable(name)}"`);
    }
    expect(await etcd.keysUnder("")).toEqual(before);
  });

  test("harms no neighbour that asks in the same moment, waits, or holds for longer than a TTL", async () => {
    await using cluster = connectAs();
    const streams = await etcd.streams();
    const sessions = await Promise.all(times(2, () => Session.open(cluster, { ttlSeconds: TTL_SECONDS })));
    const [one, two] = sessions as [Session, Session];
    const states: string[] = [];
    for (const each of sessions) each.addEventListener("statechange", ({ state }) => states.push(state));
    const held = await new Mutex(one, "jobs/kept").lock();
    const waiting = new Mutex(two, "jobs/kept").lock();
    await expect.poll(() => etcd.keysIn("jobs/kept")).toHaveLength(2);
    // One stream probed whether this is etcd itself, one carries all renewals, and one all watches.
    await expect.poll(() => etcd.streams(), { timeout: 1000 * TTL_SECONDS }).toBe(streams + 3);
    const spent = async () => [await etcd.authentications(), await etcd.streams()];
    const before = await spent();

    const calls = times(120, (i) => {
      const session = i % 2 === 0 ? one : two;
      if (i % 4 === 3) return reasonOf(new Mutex(session, FORBIDDEN[i % FORBIDDEN.length]!).lock());
      return new Mutex(session, `jobs/crowd/${i}`).withLock((lock) => lock.held);
    });
    const outcomes = await Promise.all(calls);
    const after = await spent();
    await untilLeaseExpires(etcd.etcd, TTL_SECONDS, [`--user=${ROOT.username}:${ROOT.password}`]);

    const refused = outcomes.filter((outcome) => outcome instanceof EtcdRefusedError);
    expect([refused.length, outcomes.filter((outcome) => outcome === true).length]).toEqual([30, 90]);
    // No client logged in again, and no stream was closed because of a rejection.
    expect(after).toEqual(before);
    expect([held.held, states]).toEqual([true, []]);
    await held.release();
    await (await waiting).release();
  });
});

describe("half a permission", () => {
  test.each([READER, WRITER])("($username's) is refused, and leaves no key", async (user) => {
    await using cluster = connectAs(user);
    const name = `${user.username}/a`;
    const mutex = new Mutex(cluster, name);

    const reasons = await Promise.all([mutex.lock(), mutex.tryLock()].map(reasonOf));

    for (const reason of reasons)
      expect(reason).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    expect(await etcd.keysIn(name)).toEqual([]);
  });

  test("that comes back lets a release that was refused delete its key", async () => {
    await etcd.root("role", "grant-permission", WORKER.username, "--prefix=true", "readwrite", "lent/");
    await using cluster = connectAs();
    const lock = await new Mutex(cluster, "lent/back").lock();

    await etcd.root("role", "revoke-permission", WORKER.username, "--prefix=true", "lent/");
    await lock.release();
    const kept = await etcd.keysIn("lent/back");
    await etcd.root("role", "grant-permission", WORKER.username, "--prefix=true", "readwrite", "lent/");

    expect(kept).toEqual([lock.key]);
    await expect.poll(() => etcd.keysIn("lent/back"), { timeout: 10_000 }).toEqual([]);
  });
});
