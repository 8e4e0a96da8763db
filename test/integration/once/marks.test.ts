// Where the marks of `once` are on clusters with a prefix: in no queue, not even in that of the prefix's own name.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, inspect, list, lockAll, Mutex, once, type Cluster } from "../../../src/index.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { startWithUsers } from "../../support/fixtures/users.js";

const SLOT = 1;
const MARK = "0000000000000001";
const LIMIT = { timeoutMs: 20_000 };
const never = (): never => {
  throw new Error("this work must not run");
};

let etcd: EtcdCluster;
let plain: Cluster;
let prod: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  plain = connect({ hosts: etcd.endpoints });
  prod = connect({ hosts: etcd.endpoints, prefix: "prod/", session: { owner: "prod" } });
});
afterAll(async () => {
  await Promise.all([plain, prod].map((cluster) => cluster.close({ drainMs: 0 })));
  await etcd.stop();
});

const keysUnder = async (prefix: string) =>
  (await etcd.etcdctl(["get", "--keys-only", "--prefix", prefix])).stdout.split("\n").filter(Boolean);
const put = (key: string, value: string) => etcd.etcdctl(["put", key, value]);

describe("marks of a cluster with a prefix", () => {
  test("are outside the prefix, so a lock with the prefix's own name does not wait for them", async () => {
    await using eu = connect({ hosts: etcd.endpoints, prefix: "eu/" });
    expect(await once(eu, "jobs", SLOT, () => "ran")).toEqual({ ran: true, value: "ran" });
    await expect.poll(() => placesOf(etcd.member, "eu/jobs")).toEqual([]);

    expect(await keysUnder("eu/")).toEqual([]);
    expect(await keysUnder("/leasehold/once/eu/")).toEqual([`/leasehold/once/eu/jobs//${MARK}`]);
    await using etcdctl = new EtcdctlLock(etcd, "eu");
    expect(await etcdctl.held).toMatch(/^eu\//);
    await etcdctl.release();
    const lock = await new Mutex(plain, "eu").lock(LIMIT);
    await lock.release();
    const both = await lockAll(plain, ["eu", "us"], LIMIT);
    await both.release();
    expect((await inspect(plain, "eu")).total).toEqual({ holders: 0, waiters: 0 });
    expect((await list(eu, "")).locks).toEqual([]);
    expect((await list(plain, "eu")).locks).toEqual([]);
  });

  test("are those of the full name, so that clusters with and without the prefix share its slots", async () => {
    let end = (): void => {};
    const running = once(prod, "shared", SLOT, () => new Promise<void>((resolve) => (end = resolve)));
    await expect.poll(() => placesOf(etcd.member, "prod/shared")).toHaveLength(1);
    expect(await once(plain, "prod/shared", SLOT, never)).toMatchObject({ reason: "running" });
    expect(await once(prod, "shared", SLOT, never)).toMatchObject({ reason: "running" });
    end();
    await running;

    expect(await once(plain, "prod/shared", SLOT, never)).toMatchObject({ reason: "done" });
    expect(await once(plain, "prod/shared", 2, () => "plain")).toMatchObject({ ran: true });
    expect(await once(prod, "shared", 2, never)).toMatchObject({ reason: "done" });
    // Without the prefix it is another name.
    expect(await once(plain, "shared", SLOT, () => "other")).toMatchObject({ ran: true });
  });

  test("expire as those of a cluster without one", async () => {
    for (const slot of [1, 2, 3]) await once(prod, "expire", slot, () => slot, { keep: 1 });

    expect(await once(prod, "expire", 2, never)).toMatchObject({ reason: "expired" });
    expect(await keysUnder("/leasehold/once/prod/expire//")).toEqual([
      "/leasehold/once/prod/expire//-0000000000000002",
      "/leasehold/once/prod/expire//0000000000000003",
    ]);
  });
});

describe("marks that an older version put under the prefix", () => {
  const old = (name: string, slot = MARK) => `prod//leasehold/once/${name}//${slot}`;
  const value = (state: string) =>
    JSON.stringify({
      state,
      owner: "old",
      since: "2026-01-02T03:04:05.678Z",
      id: "1",
      key: "old/6a1f",
      fence: "7",
    });

  test("are read: a slot that was run, that has failed, and that has expired is not run again", async () => {
    await put(old("done"), value("done"));
    await put(old("failed"), value("failed"));
    await put(old("floor", "-0000000000000005"), "");

    expect(await once(prod, "done", SLOT, never)).toMatchObject({
      reason: "done",
      run: { owner: "old", failed: false },
    });
    expect(await once(prod, "failed", SLOT, never)).toMatchObject({ reason: "done", run: { failed: true } });
    expect(await once(prod, "floor", 5, never)).toMatchObject({ reason: "expired" });
    expect(await once(prod, "floor", 6, () => 6)).toMatchObject({ ran: true });
  });

  test("are read by a call that had to wait, too", async () => {
    const held = await new Mutex(prod, "waits").lock();
    const waiting = once(prod, "waits", SLOT, never);
    await expect.poll(() => placesOf(etcd.member, "prod/waits")).toHaveLength(2);
    await put(old("waits"), value("done"));
    await held.release();

    expect(await waiting).toMatchObject({ reason: "done", run: { owner: "old" } });
  });

  test("of a lost run let the slot run again once, and only for those who ask for it", async () => {
    await put(old("lost"), value("started"));

    expect(await once(prod, "lost", SLOT, never)).toMatchObject({ reason: "lost", run: { owner: "old" } });
    expect(await once(prod, "lost", SLOT, () => "again", { rerun: "if_lost" })).toMatchObject({ ran: true });
    const after = await once(prod, "lost", SLOT, never, { rerun: "if_lost" });
    expect(after).toMatchObject({ reason: "done", run: { owner: "prod" } });
  });

  test("of a run that still holds say that it is running", async () => {
    const lock = await new Mutex(prod, "holds").lock();
    const key = lock.key.slice("prod/".length);
    await put(old("holds"), JSON.stringify({ state: "started", id: "1", key, fence: String(lock.fence) }));

    expect(await once(prod, "holds", SLOT, never)).toMatchObject({ reason: "running" });
    await lock.release();
    expect(await once(prod, "holds", SLOT, never)).toMatchObject({ reason: "lost" });
  });

  test("end the wait of a lock of the prefix's own name with an error that says what to do", async () => {
    await put("us//leasehold/once/jobs//0000000000000001", value("done"));

    const error = await reasonOf(new Mutex(plain, "us").lock(LIMIT));
    expect(error).toMatchObject({ code: "KIND_MISMATCH", foundName: "us//leasehold/once/jobs" });
    expect((error as Error).message).toMatch(/Delete all keys that begin with "us\/\/leasehold\/once\/"$/);
    await etcd.etcdctl(["del", "--prefix", "us//leasehold/once/"]);
    const lock = await new Mutex(plain, "us").lock(LIMIT);
    await lock.release();
  });
});

test("a role needs the prefix and that of its marks, and nothing else; an error names the mark that it lacks", async () => {
  const users = await startWithUsers();
  try {
    const auth = { username: "prod", password: "prod-secret" };
    await users.addUser(auth, "prod/");
    await using cluster = connect({ hosts: users.endpoints, auth, prefix: "prod/" });

    const refused = await reasonOf(once(cluster, "jobs", SLOT, never));
    expect(refused).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    expect((refused as Error).message).toContain(`with the mark /leasehold/once/prod/jobs//${MARK}`);
    await users.root(
      "role",
      "grant-permission",
      "prod",
      "--prefix=true",
      "readwrite",
      "/leasehold/once/prod/",
    );

    expect(await once(cluster, "jobs", SLOT, () => "ran")).toMatchObject({ ran: true });
    expect(await once(cluster, "jobs", SLOT, never)).toMatchObject({ reason: "done" });
    await using test = connect({ hosts: users.endpoints, auth, prefix: "test/" });
    expect(await reasonOf(once(test, "jobs", SLOT, never))).toMatchObject({ reason: "permission" });
  } finally {
    await users.stop();
  }
});
