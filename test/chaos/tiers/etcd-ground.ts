import type { EtcdCluster } from "../../support/etcd.js";
import type { TcpProxy } from "../../support/tcp-proxy.js";
import type { Ground } from "../lab/ground.js";

/** What the grounds have in common whose etcd was started by `startEtcd`. */
export abstract class EtcdGround implements Ground {
  protected readonly etcd: EtcdCluster;
  abstract readonly hosts: readonly string[];

  constructor(etcd: EtcdCluster) {
    this.etcd = etcd;
  }

  get version() {
    return this.etcd.version;
  }
  get members() {
    return this.etcd.members;
  }

  leader() {
    return this.etcd.leader({ timeoutMs: 3000 }).catch(() => this.etcd.member);
  }

  async stop() {
    await this.etcd.stop();
  }
}

/** Workers come by way of proxies that know bytes. */
export abstract class LinkedGround extends EtcdGround {
  readonly links: readonly TcpProxy[];

  constructor(etcd: EtcdCluster, links: readonly TcpProxy[]) {
    super(etcd);
    this.links = links;
  }

  get hosts() {
    return this.links.map(({ endpoint }) => endpoint);
  }

  override async stop() {
    await Promise.all(this.links.map((link) => link.stop()));
    await super.stop();
  }
}
