import { GenericContainer, Wait } from "testcontainers";

/** etcd in a container, reachable at one port of 127.0.0.1, which stays the same when the container is restarted. */
export class EtcdContainer extends GenericContainer {
  /** `args`: more flags for etcd. */
  constructor(port: number, args: readonly string[] = []) {
    super(process.env["LEASEHOLD_ETCD_IMAGE"] ?? "leasehold-etcd");
    const urls = [
      "--listen-client-urls=http://0.0.0.0:2379",
      `--advertise-client-urls=http://127.0.0.1:${port}`,
    ];
    this.withCommand(["--data-dir=/tmp/etcd", "--logger=zap", ...urls, ...args]);
    this.withExposedPorts({ container: 2379, host: port });
    this.withWaitStrategy(Wait.forLogMessage(/ready to serve client requests|serving client traffic/));
  }

  protected override beforeContainerCreated(): Promise<void> {
    // by default, docker publishes on all interfaces
    for (const bindings of Object.values(
      this.hostConfig.PortBindings as Record<string, { HostIp?: string }[]>,
    )) {
      for (const binding of bindings) binding.HostIp = "127.0.0.1";
    }
    return Promise.resolve();
  }
}
