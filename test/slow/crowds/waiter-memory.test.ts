// The memory of one waiting call, of each kind: nothing else measures it.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { crowdOf } from "../../support/fixtures/scale.js";
import { waiterBytes } from "../../support/programs/waiter-memory.js";

let etcd: EtcdCluster;
beforeAll(() => {
  const build = fileURLToPath(new URL("../../../scripts/build.js", import.meta.url));
  execFileSync(process.execPath, [build], { timeout: 120_000 });
}, 150_000);
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

/** Fits into a heap of 64 MB if the waiters share a name, but not if each has its own. */
const COUNT = crowdOf(20_000, 4000);

describe(`${COUNT} waiters of one process`, { timeout: 240_000 }, () => {
  test.each([
    ["one name", crowdOf(1150, 1400), 64],
    ["semaphore", crowdOf(1200, 1450), 64],
    ["names", 4250, undefined],
  ] as const)("on %s cost less than %i bytes each, in a heap of %s MB", async (kind, limit, heapMb) => {
    expect(await waiterBytes(etcd, kind, COUNT, heapMb)).toBeLessThan(limit);
  });
});
