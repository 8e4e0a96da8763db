// Authentication is switched on and off, and users change, while clients keep running.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf } from "../../support/clients/server-view.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { untilLeaseExpires } from "../../support/clients/lease-yardstick.js";
import { ROOT, startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const TTL_SECONDS = 4;
const AS_ROOT = [`--user=${ROOT.username}:${ROOT.password}`];

let etcd: UserEtcd;
beforeEach(async () => void (etcd = await startWithUsers()), 60_000);
afterEach(() => etcd.stop());

const clusterOf = (auth = WORKER) =>
  connect({ hosts: etcd.endpoints, auth, session: { ttlSeconds: TTL_SECONDS } });

async function lockAndRelease(cluster: ReturnType<typeof connect>, name: string) {
  const lock = await new Mutex(cluster, name).lock({ timeoutMs: 10_000 });
  await lock.release();
  return lock;
}

describe("authentication that is enabled after the process has started", () => {
  test("keeps what is held, serves who waits, and rejects no call", async () => {
    await etcd.root("auth", "disable");
    await using holder = clusterOf();
    await using other = clusterOf();
    const held = await new Mutex(holder, "jobs/held").lock();
    const late = new Mutex(other, "jobs/held").lock();
    await expect.poll(() => etcd.keysIn("jobs/held")).toHaveLength(2);

    await etcd.root("auth", "enable");

    await lockAndRelease(holder, "jobs/next");
    await lockAndRelease(other, "jobs/next");
    await untilLeaseExpires(etcd.etcd, TTL_SECONDS, AS_ROOT);
    expect(held.held).toBe(true);
    await held.release();
    await (await late).release();
    expect(await etcd.keysUnder("jobs/")).toEqual([]);
  });

  test("serves who begins to wait only then, on streams that had no token", async () => {
    await etcd.root("auth", "disable");
    await using holder = clusterOf();
    await using other = clusterOf();
    const held = await new Mutex(holder, "jobs/held").lock();
    // The streams were opened without a token.
    await expect(new Mutex(other, "jobs/held").lock({ timeoutMs: 300 })).rejects.toThrow("not acquired");

    await etcd.root("auth", "enable");
    const late = new Mutex(other, "jobs/held").lock();
    await expect.poll(() => etcd.keysIn("jobs/held")).toHaveLength(2);
    await held.release();

    await (await late).release();
    expect(await etcd.keysUnder("jobs/")).toEqual([]);
  });
});

describe.each([
  ["the grant of a first lease", { path: "/etcdserverpb.Lease/LeaseGrant" }],
  ["the first join, after that grant,", { path: "/etcdserverpb.KV/Txn", when: takesPlace }],
] as const)("authentication that is enabled while %s is on its way", (_, step) => {
  async function lockingWhileEnabled(auth: typeof WORKER | undefined) {
    await etcd.root("auth", "disable");
    const proxy = await startGrpcProxy({ port: etcd.etcd.member.clientPort });
    const held = proxy.rule({ ...step, act: "hold", times: 1 });
    const cluster = connect({ hosts: proxy.endpoint, auth, session: { ttlSeconds: TTL_SECONDS } });
    const locking = new Mutex(cluster, "jobs/first").lock();
    locking.catch(() => undefined);
    await held.hit();
    await etcd.root("auth", "enable");
    held.release();
    const stop = async () => {
      await cluster.close({ drainMs: 0 });
      await proxy.stop();
    };
    return { locking, [Symbol.asyncDispose]: stop };
  }

  test("costs a user with a password no lock", async () => {
    await using it = await lockingWhileEnabled(WORKER);
    const lock = await it.locking;
    expect(await etcd.keysUnder("jobs/")).toEqual([lock.key]);
  });

  test("is a refusal without a password, and leaves no key, and its lease for one TTL at most", async () => {
    {
      await using it = await lockingWhileEnabled(undefined);
      await expect(it.locking).rejects.toMatchObject({ code: "ETCD_REFUSED", reason: "unauthenticated" });
    }
    expect(await etcd.keysUnder("jobs/")).toEqual([]);
    await untilLeaseExpires(etcd.etcd, TTL_SECONDS, AS_ROOT);
    expect(await leasesOf(etcd.etcd.member)).toEqual(new Set());
  });
});

test("authentication that is switched off and on again in the middle rejects no call", async () => {
  await using cluster = clusterOf();
  const held = await new Mutex(cluster, "jobs/held").lock();

  for (const switched of ["disable", "enable", "disable", "enable"]) {
    await etcd.root("auth", switched);
    await lockAndRelease(cluster, `jobs/${switched}`);
  }

  await untilLeaseExpires(etcd.etcd, TTL_SECONDS, AS_ROOT);
  expect(held.held).toBe(true);
  await held.release();
  expect(await etcd.keysUnder("jobs/")).toEqual([]);
});

test("a password that is changed is wrong from the next login on, and right again when it is changed back", async () => {
  await using cluster = clusterOf();
  const session = await Session.open(cluster, { ttlSeconds: 60 });
  await (await new Mutex(session, "jobs/a").lock()).release();

  await recreate("other");
  await etcd.dropTokens();
  await expect(new Mutex(session, "jobs/a").lock()).rejects.toMatchObject({
    code: "ETCD_REFUSED",
    reason: "unauthenticated",
  });
  await recreate();

  const lock = await new Mutex(session, "jobs/a").lock({ timeoutMs: 10_000 });
  expect(lock.held).toBe(true);
  await lock.release();
});

test("a user that is created anew in the middle keeps its locks", async () => {
  await using cluster = clusterOf();
  const held = await new Mutex(cluster, "jobs/held").lock();

  await recreate();

  await lockAndRelease(cluster, "jobs/next");
  await untilLeaseExpires(etcd.etcd, TTL_SECONDS, AS_ROOT);
  expect(held.held).toBe(true);
  await held.release();
  expect(await etcd.keysUnder("jobs/")).toEqual([]);
});

async function recreate(password = WORKER.password) {
  await etcd.root("user", "delete", WORKER.username);
  await etcd.root("user", "add", `${WORKER.username}:${password}`);
  await etcd.root("user", "grant-role", WORKER.username, WORKER.username);
}
