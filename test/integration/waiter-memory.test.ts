import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../support/etcd.js";
import { waiterBytes } from "../support/waiter-memory.js";

let etcd: EtcdCluster;
beforeAll(() => {
  const build = fileURLToPath(new URL("../support/build.js", import.meta.url));
  execFileSync(process.execPath, [build], { timeout: 120_000 });
}, 150_000);
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

describe("20,000 waiters of one process", { timeout: 120_000 }, () => {
  test.each([
    ["one name", 1150],
    ["semaphore", 1200],
  ] as const)("on %s fit in a heap of 64 MB, at less than %i bytes each", async (kind, limit) => {
    expect(await waiterBytes(etcd, kind, 20_000, 64)).toBeLessThan(limit);
  });
});

test("3,000 waiters, each on a name of its own, cost less than 4,250 bytes each", async () => {
  expect(await waiterBytes(etcd, "names", 3000, 64)).toBeLessThan(4250);
}, 120_000);
