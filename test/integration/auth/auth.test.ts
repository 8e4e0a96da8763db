import { inspect } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, EtcdRefusedError, Mutex, Session } from "../../../src/index.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { ROOT, startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const TTL_SECONDS = 10;
const LIMIT = { timeoutMs: 20_000 };

let etcd: UserEtcd;

const connectAs = (auth = WORKER) =>
  connect({ hosts: etcd.endpoints, auth, session: { ttlSeconds: TTL_SECONDS } });

beforeAll(async () => void (etcd = await startWithUsers()), 60_000);
afterAll(() => etcd.stop());

describe("a user with a password", () => {
  test("locks, waits and is served under a prefix that its role covers", async () => {
    await using cluster = connectAs();
    const mutex = new Mutex(cluster, "jobs/a");
    const lock = await mutex.lock();
    const waiting = new Mutex(await Session.open(cluster), "jobs/a").lock();
    await expect.poll(() => etcd.keysIn("jobs/a")).toHaveLength(2);

    await lock.release();
    const next = await waiting;

    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test("given by a function keeps its session and its locks when the password is changed", async () => {
    let current: unknown = { username: "rotated", password: "first-secret" };
    await etcd.addUser(current as typeof WORKER, "rotated/");
    const said: string[] = [];
    await using cluster = connect({
      hosts: etcd.endpoints,
      auth: () => current as typeof WORKER,
      log: ({ event, message }) => void said.push(`${event}: ${message}`),
    });
    const lock = await new Mutex(cluster, "rotated/a").lock();
    const { leaseId } = await cluster.session();

    const next = { username: "rotated", password: "second-secret" };
    await etcd.ask("auth/user/changepw", { name: next.username, password: next.password });
    current = next;
    await etcd.dropTokens();
    await (await new Mutex(cluster, "rotated/b").lock(LIMIT)).release();

    // What is no user and password leaves those of before in use.
    current = { username: "rotated" };
    await etcd.dropTokens();
    await (await new Mutex(cluster, "rotated/c").lock(LIMIT)).release();
    expect(said).toContainEqual(expect.stringMatching(/^credentials\.kept: auth\(\) has failed; /));
    expect(lock.held).toBe(true);
    expect((await cluster.session()).leaseId).toBe(leaseId);
    await lock.release();
  });

  test.each([
    ["a wrong password", { ...WORKER, password: "wrong-secret" }],
    ["an unknown name", { username: "nobody", password: WORKER.password }],
    ["no password at all", undefined],
  ])("is refused with %s: in time, and without the password in the error", async (_, auth) => {
    await using cluster = connect({ hosts: etcd.endpoints, auth });
    const mutex = new Mutex(cluster, "jobs/refused");
    const start = performance.now();

    const reasons = await Promise.all(
      [mutex.lock(LIMIT), mutex.tryLock(LIMIT), mutex.withLock(() => 1, LIMIT)].map(reasonOf),
    );

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({
        code: "ETCD_REFUSED",
        reason: "unauthenticated",
        host: etcd.endpoints[0],
      });
      expect(inspect(reason, { depth: 5 })).not.toMatch(/secret/);
    }
    expect(performance.now() - start).toBeLessThan(LIMIT.timeoutMs);
  });

  test("gets an error that names the lock outside its role; its holds and waits continue", async () => {
    await using cluster = connectAs();
    const session = await cluster.session();
    const held = await new Mutex(session, "jobs/held").lock();
    const waiting = new Mutex(session, "jobs/held").lock();
    await expect.poll(() => etcd.keysIn("jobs/held")).toHaveLength(2);
    const other = new Mutex(session, "other");
    let worked = false;

    const reasons = await Promise.all(
      [other.lock(LIMIT), other.tryLock(LIMIT), other.withLock(() => void (worked = true), LIMIT)].map(
        reasonOf,
      ),
    );

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ reason: "permission" });
      expect((reason as Error).message).toMatch(/refused to join the queue of "other" \(permission\)/);
    }
    expect([worked, held.held, session.state]).toEqual([false, true, "live"]);
    await held.release();
    await (await waiting).release();
    expect(await etcd.keysIn("other")).toEqual([]);
  });

  test("may lock a name whose queue it can reach, though not the name itself", async () => {
    await using cluster = connectAs();

    await expect(new Mutex(cluster, "jobs").withLock((lock) => lock.held, LIMIT)).resolves.toBe(true);
  });
});

describe("a token that etcd does not know any more", () => {
  test("disturbs neither holder nor waiter, and the next calls fetch a new one", async () => {
    await using one = connectAs();
    await using two = connectAs();
    const lock = await new Mutex(one, "jobs/dropped").lock();
    const waiting = new Mutex(two, "jobs/dropped").lock();
    await expect.poll(() => etcd.keysIn("jobs/dropped")).toHaveLength(2);

    await etcd.dropTokens();
    // This needs a call, and watches on streams that were opened with the old token.
    const late = new Mutex(await Session.open(two), "jobs/dropped").lock();
    await expect.poll(() => etcd.keysIn("jobs/dropped")).toHaveLength(3);
    expect([lock.held, lock.signal.aborted]).toEqual([true, false]);
    await lock.release();
    const next = await waiting;
    await etcd.dropTokens();
    await next.release();
    const last = await late;

    expect([lock, next, last].map(({ fence }) => fence)).toEqual(
      [lock, next, last].map(({ fence }) => fence).sort((a, b) => (a < b ? -1 : 1)),
    );
    await last.release();
    expect(await etcd.keysIn("jobs/dropped")).toEqual([]);
  });

  test("is replaced once for a hundred calls that find it invalid", async () => {
    await using cluster = connectAs();
    const session = await cluster.session();
    await etcd.dropTokens();
    const before = await etcd.authentications();

    const locks = await Promise.all(
      Array.from({ length: 100 }, (_, i) => new Mutex(session, `jobs/many/${i}`).lock(LIMIT)),
    );

    expect((await etcd.authentications()) - before).toBe(1);
    await Promise.all(locks.map((lock) => lock.release()));
  });

  test("is replaced when the member was started again: holder and waiter go on", async () => {
    await using cluster = connectAs();
    const lock = await new Mutex(cluster, "jobs/restart").lock();
    const waiting = new Mutex(
      await Session.open(cluster, { ttlSeconds: TTL_SECONDS }),
      "jobs/restart",
    ).lock();
    await expect.poll(() => etcd.keysIn("jobs/restart")).toHaveLength(2);

    await etcd.etcd.member.kill();
    await etcd.etcd.member.restart();
    await expect.poll(() => etcd.keysIn("jobs/restart").catch(() => [])).toHaveLength(2);
    expect(lock.held).toBe(true);
    await lock.release();
    const next = await waiting;

    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });
});

describe("a permission that is withdrawn", () => {
  test("ends the wait that needs it with a refusal, not with silence", async () => {
    await etcd.root("role", "grant-permission", WORKER.username, "--prefix=true", "readwrite", "lent/");
    await using holder = connectAs(ROOT);
    await using cluster = connectAs();
    const lock = await new Mutex(holder, "lent/a").lock();
    const between = new Mutex(holder, "lent/a");
    const caller = new AbortController();
    const second = reasonOf(between.lock({ signal: caller.signal }));
    await expect.poll(() => etcd.keysIn("lent/a")).toHaveLength(2);
    const waiting = reasonOf(new Mutex(cluster, "lent/a").lock());
    await expect.poll(() => etcd.keysIn("lent/a")).toHaveLength(3);

    await etcd.root("role", "revoke-permission", WORKER.username, "--prefix=true", "lent/");
    caller.abort();
    await second;
    const reason = await waiting;

    expect(reason).toBeInstanceOf(EtcdRefusedError);
    expect(reason).toMatchObject({ reason: "permission" });
    expect(lock.held).toBe(true);
    await cluster.close({ drainMs: 0 });
    await lock.release();
  });
});
