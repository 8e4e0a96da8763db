// The same library against etcd in a container, as users of testcontainers have it. Run by test/support/docker-tests.js.
import { GenericContainer, getContainerRuntimeClient, Wait, type StartedTestContainer } from "testcontainers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect, LockLostError, Mutex, type Cluster } from "../../src/index.js";
import { freePorts } from "../support/ports.js";

class EtcdContainer extends GenericContainer {
  constructor(port: number) {
    super(process.env["LEASEHOLD_ETCD_IMAGE"] ?? "leasehold-etcd");
    const urls = [
      "--listen-client-urls=http://0.0.0.0:2379",
      "--advertise-client-urls=http://127.0.0.1:2379",
    ];
    this.withCommand(["--data-dir=/tmp/etcd", "--logger=zap", ...urls]);
    this.withExposedPorts({ container: 2379, host: port });
    this.withWaitStrategy(Wait.forLogMessage(/ready to serve client requests|serving client traffic/));
  }

  protected override beforeContainerCreated(): Promise<void> {
    // docker publishes on all interfaces unless told otherwise
    for (const bindings of Object.values(
      this.hostConfig.PortBindings as Record<string, { HostIp?: string }[]>,
    )) {
      for (const binding of bindings) binding.HostIp = "127.0.0.1";
    }
    return Promise.resolve();
  }
}

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
