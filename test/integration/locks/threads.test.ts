// What docs/troubleshooting.md says of worker threads, and of names that look alike.
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, Mutex } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Said } from "../../support/programs/said.js";

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
});
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const LEASEHOLD = new URL("../../../dist/leasehold.js", import.meta.url).href;
const THREAD = `
  const { parentPort, threadId, workerData } = require("node:worker_threads");
  import(workerData.leasehold).then(async ({ connect, Mutex }) => {
    const cluster = connect({ hosts: workerData.hosts, session: { owner: "thread " + threadId } });
    const fence = await new Mutex(cluster, "jobs/threads").withLock((lock) => lock.fence);
    await cluster.close();
    parentPort.postMessage(fence);
  });
`;

test("a worker thread with a cluster of its own waits in the same queue", { timeout: 60_000 }, async () => {
  const lock = await new Mutex(cluster, "jobs/threads").lock();
  const workerData = { hosts: etcd.endpoints, leasehold: LEASEHOLD };
  const worker = new Worker(THREAD, { eval: true, workerData });
  const answer = new Said(worker).next<bigint>();
  await expect.poll(() => placesOf(etcd.member, "jobs/threads")).toHaveLength(2);
  await lock.release();

  const fence = await answer;
  expect(fence).toBeGreaterThan(lock.fence);
  await worker.terminate();
});

test(
  "a thread that is terminated leaves its place, though the process goes on",
  { timeout: 60_000 },
  async () => {
    const holds = THREAD.replace(
      "withLock((lock) => lock.fence)",
      "lock().then((lock) => lock.fence)",
    ).replace("await cluster.close();", "");
    const workerData = { hosts: etcd.endpoints, leasehold: LEASEHOLD };
    const worker = new Worker(holds, { eval: true, workerData });
    await new Said(worker).next();
    await worker.terminate();
    expect(await placesOf(etcd.member, "jobs/threads")).toHaveLength(1);
  },
);

test("a lock that was posted to a thread has its name and key, and nothing that could tell of a loss", async () => {
  await using lock = await new Mutex(cluster, "jobs/posted").lock();
  const posted = structuredClone(lock);
  expect(posted).toMatchObject({ name: lock.name, key: lock.key, revision: lock.revision });
  expect(["signal", "held", "fence", "release"].filter((member) => member in posted)).toEqual([]);
});

test("names that look alike in NFC and NFD are two locks", async () => {
  const [composed, decomposed] = ["caf\u00e9", "cafe\u0301"];
  await using one = await new Mutex(cluster, composed).lock();
  await using two = await new Mutex(cluster, decomposed).tryLock();
  expect([one.held, two?.held]).toEqual([true, true]);
});
