import { inspect } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, EtcdRefusedError, Mutex, Session } from "../../src/index.js";
import { type EtcdCluster, startEtcd } from "../support/etcd.js";

const TTL_SECONDS = 10;
const ROOT = "root:root-secret";
const SECRET = "worker-secret";
const WORKER = { username: "worker", password: SECRET };
const LIMIT = { timeoutMs: 5000 };

let etcd: EtcdCluster;

async function etcdctl(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await etcd.etcdctl([`--user=${ROOT}`, ...args]);
  if (code !== 0) throw new Error(`etcdctl ${args.join(" ")}: ${stderr}`);
  return stdout;
}

const keysIn = async (name: string) =>
  (await etcdctl("get", "--prefix", "--keys-only", `${name}/`)).split("\n").filter((line) => line !== "");
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(() => undefined).catch((reason: unknown) => reason);
const connectAs = (auth = WORKER) =>
  connect({ hosts: etcd.endpoints, auth, session: { ttlSeconds: TTL_SECONDS } });

async function authentications(): Promise<number> {
  const metrics = await etcd.member.metrics();
  const series = [...metrics].filter(
    ([key]) => key.startsWith("grpc_server_handled_total") && key.includes('"Authenticate"'),
  );
  return series.reduce((sum, [, count]) => sum + count, 0);
}

/** No token that was given out before is valid afterwards. */
async function dropTokens(): Promise<void> {
  await etcdctl("auth", "disable");
  await etcdctl("auth", "enable");
}

beforeAll(async () => {
  etcd = await startEtcd();
  await etcdctl("user", "add", ROOT);
  await etcdctl("user", "grant-role", "root", "root");
  await etcdctl("role", "add", "jobs");
  await etcdctl("role", "grant-permission", "jobs", "--prefix=true", "readwrite", "jobs/");
  await etcdctl("user", "add", `${WORKER.username}:${SECRET}`);
  await etcdctl("user", "grant-role", WORKER.username, "jobs");
  await etcdctl("auth", "enable");
}, 60_000);
afterAll(() => etcd.stop());

describe("a user with a password", () => {
  test("locks, waits and is served under a prefix that its role covers", async () => {
    await using cluster = connectAs();
    const mutex = new Mutex(cluster, "jobs/a");
    const lock = await mutex.lock();
    const waiting = new Mutex(await Session.open(cluster), "jobs/a").lock();
    await expect.poll(() => keysIn("jobs/a")).toHaveLength(2);

    await lock.release();
    const next = await waiting;

    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test.each([
    ["a wrong password", { ...WORKER, password: "wrong-secret" }],
    ["an unknown name", { username: "nobody", password: SECRET }],
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
      expect(reason).toMatchObject({ code: "ETCD_REFUSED", why: "unauthenticated", host: etcd.endpoints[0] });
      expect(inspect(reason, { depth: 5 })).not.toMatch(/secret/);
    }
    expect(performance.now() - start).toBeLessThan(LIMIT.timeoutMs);
  });

  test("is told which lock its role does not cover; what it holds and waits for is unharmed", async () => {
    await using cluster = connectAs();
    const session = await cluster.session();
    const held = await new Mutex(session, "jobs/held").lock();
    const waiting = new Mutex(session, "jobs/held").lock();
    await expect.poll(() => keysIn("jobs/held")).toHaveLength(2);
    const other = new Mutex(session, "other");
    let worked = false;

    const reasons = await Promise.all(
      [other.lock(LIMIT), other.tryLock(LIMIT), other.withLock(() => void (worked = true), LIMIT)].map(
        reasonOf,
      ),
    );

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ why: "permission" });
      expect((reason as Error).message).toMatch(/refused to join the queue of "other" \(permission\)/);
    }
    expect([worked, held.held, session.state]).toEqual([false, true, "live"]);
    await held.release();
    await (await waiting).release();
    expect(await keysIn("other")).toEqual([]);
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
    await expect.poll(() => keysIn("jobs/dropped")).toHaveLength(2);

    await dropTokens();
    // Needs a call, and watches on streams that were opened with the old token.
    const late = new Mutex(await Session.open(two), "jobs/dropped").lock();
    await expect.poll(() => keysIn("jobs/dropped")).toHaveLength(3);
    expect([lock.held, lock.signal.aborted]).toEqual([true, false]);
    await lock.release();
    const next = await waiting;
    await dropTokens();
    await next.release();
    const last = await late;

    expect([lock, next, last].map(({ fence }) => fence)).toEqual(
      [lock, next, last].map(({ fence }) => fence).sort((a, b) => (a < b ? -1 : 1)),
    );
    await last.release();
    expect(await keysIn("jobs/dropped")).toEqual([]);
  });

  test("is replaced once for a hundred calls that find it invalid", async () => {
    await using cluster = connectAs();
    const session = await cluster.session();
    await dropTokens();
    const before = await authentications();

    const locks = await Promise.all(
      Array.from({ length: 100 }, (_, i) => new Mutex(session, `jobs/many/${i}`).lock(LIMIT)),
    );

    expect((await authentications()) - before).toBe(1);
    await Promise.all(locks.map((lock) => lock.release()));
  });

  test("is replaced when the member was started again: holder and waiter go on", async () => {
    await using cluster = connectAs();
    const lock = await new Mutex(cluster, "jobs/restart").lock();
    const waiting = new Mutex(
      await Session.open(cluster, { ttlSeconds: TTL_SECONDS }),
      "jobs/restart",
    ).lock();
    await expect.poll(() => keysIn("jobs/restart")).toHaveLength(2);

    await etcd.member.kill();
    await etcd.member.restart();
    await expect.poll(() => keysIn("jobs/restart").catch(() => [])).toHaveLength(2);
    expect(lock.held).toBe(true);
    await lock.release();
    const next = await waiting;

    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });
});

describe("a permission that is withdrawn", () => {
  test("ends the wait that needs it with a refusal, not with silence", async () => {
    await etcdctl("role", "grant-permission", "jobs", "--prefix=true", "readwrite", "lent/");
    await using holder = connectAs({ username: "root", password: ROOT.slice(5) });
    await using cluster = connectAs();
    const lock = await new Mutex(holder, "lent/a").lock();
    const between = new Mutex(holder, "lent/a");
    const caller = new AbortController();
    const second = reasonOf(between.lock({ signal: caller.signal }));
    await expect.poll(() => keysIn("lent/a")).toHaveLength(2);
    const waiting = reasonOf(new Mutex(cluster, "lent/a").lock());
    await expect.poll(() => keysIn("lent/a")).toHaveLength(3);

    await etcdctl("role", "revoke-permission", "jobs", "--prefix=true", "lent/");
    caller.abort();
    await second;
    const reason = await waiting;

    expect(reason).toBeInstanceOf(EtcdRefusedError);
    expect(reason).toMatchObject({ why: "permission" });
    expect(lock.held).toBe(true);
    await cluster.close({ drainMs: 0 });
    await lock.release();
  });
});
