// The library on an etcd in a container, the setup of testcontainers users. Run by `npm run test:all -- docker`.
import { getContainerRuntimeClient, type StartedTestContainer } from "testcontainers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect, LockLostError, Mutex, type Cluster } from "../../src/index.js";
import { EtcdContainer } from "../support/etcd/etcd-container.js";
import { freePorts } from "../support/servers/ports.js";

describe("an etcd in a container", () => {
  let container: StartedTestContainer;
  let cluster: Cluster;

  beforeAll(async () => {
    const [port] = (await freePorts(1)) as [number];
    container = await new EtcdContainer(port).start();
    cluster = connect({ hosts: `127.0.0.1:${port}`, session: { ttlSeconds: 2 } });
  }, 60_000);

  afterAll(async () => {
    await Promise.allSettled([cluster.close({ drainMs: 0 })]);
    await Promise.allSettled([container.stop()]);
  });

  it("serves a lock to one holder after the other, with rising fences", async () => {
    const mutex = new Mutex(cluster, "container/turns");

    const fences = await Promise.all([1, 2, 3].map(() => mutex.withLock((lock) => lock.fence)));

    expect(new Set(fences).size).toBe(3);
    expect(fences.toSorted((a, b) => Number(a - b))).toEqual(fences);
  });

  it("that is frozen longer than the TTL costs the lock, and gives it again when it is back", async () => {
    const mutex = new Mutex(cluster, "container/frozen");
    const lock = await mutex.lock();
    const lost = new Promise((resolve) =>
      lock.signal.addEventListener("abort", () => resolve(lock.signal.reason)),
    );
    const client = await getContainerRuntimeClient();
    const frozen = client.container.getById(container.getId());

    await frozen.pause();
    const reason = await lost;
    await frozen.unpause();
    const again = await mutex.lock({ timeoutMs: 20_000 });

    expect(reason).toBeInstanceOf(LockLostError);
    expect(again.fence).toBeGreaterThan(lock.fence);
    await again.release();
  });
});
