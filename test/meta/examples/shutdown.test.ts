import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { Upstream } from "../../support/proxies/upstream.js";

/** No lease expires during these tests: a process that takes over does so because of a release. */
const TTL_SECONDS = "600";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
// a process killed at the end of a test leaves its place for a TTL
beforeEach(async () => void (await etcd.etcdctl(["del", "--prefix", "jobs/"])));
afterAll(() => etcd?.stop());

const queued = async () => (await placesOf(etcd.member, "jobs/import")).length;

describe("examples/shutdown.js", { timeout: 60_000 }, () => {
  test("on SIGTERM finishes its job under the lock, and the next worker goes on without waiting for the TTL", async () => {
    await using jobs = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { JOBS_URL: jobs.url, TTL_SECONDS });
    const first = examples.start("shutdown.js");
    const begun = await jobs.next();
    const second = examples.start("shutdown.js");
    await expect.poll(queued).toBe(2);

    first.signal("SIGTERM");
    await first.says("stopping");
    expect([await queued(), jobs.asked.length]).toEqual([2, 1]);
    begun.answer("job 1");
    const { code, stdout, stderr } = await first.ended;

    expect([code, stdout, stderr]).toEqual([0, "stopping\ndid job 1\nstopped\n", ""]);
    (await jobs.next()).answer("job 2");
    await second.says("did job 2");
  });

  test("on SIGTERM a worker that waits ends at once and leaves neither place nor lease behind", async () => {
    await using jobs = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { JOBS_URL: jobs.url, TTL_SECONDS });
    const leases = await leasesOf(etcd.member);
    const first = examples.start("shutdown.js");
    const begun = await jobs.next();
    const second = examples.start("shutdown.js");
    await expect.poll(queued).toBe(2);

    second.signal("SIGTERM");
    const { code, stdout, stderr } = await second.ended;

    expect([code, stdout, stderr]).toEqual([0, "stopping\nstopped\n", ""]);
    expect(await queued()).toBe(1);
    expect((await leasesOf(etcd.member)).size).toBe(leases.size + 1);
    first.signal("SIGTERM");
    begun.answer("job 1");
    expect((await first.ended).code).toBe(0);
    expect(await leasesOf(etcd.member)).toEqual(leases);
  });

  test("a job that takes longer than the drain is aborted, and the next worker goes on", async () => {
    await using jobs = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { JOBS_URL: jobs.url, TTL_SECONDS, DRAIN_MS: "300" });
    const first = examples.start("shutdown.js");
    const begun = await jobs.next();
    const second = examples.start("shutdown.js");
    await expect.poll(queued).toBe(2);

    first.signal("SIGTERM");
    await begun.gone;
    const { code, stderr } = await first.ended;

    expect(code).toBe(1);
    expect(stderr).toContain("LockLostError");
    (await jobs.next()).answer("job 2");
    await second.says("did job 2");
  });
});
