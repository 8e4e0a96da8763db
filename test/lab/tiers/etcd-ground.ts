import type { EtcdCluster } from "../../support/etcd/etcd.js";
import type { TcpProxy } from "../../support/proxies/tcp-proxy.js";
import { LAB_PREFIX, type Access, type Ground, type GroundOptions } from "../runner/ground.js";
import { Users, WORKER } from "../runner/users.js";

/** The options of `startEtcd` that correspond to these. */
export const etcdOptions = ({ etcdVersion, auth }: GroundOptions) => ({
  ...(etcdVersion !== undefined && { version: etcdVersion }),
  args: [
    // A learner may join in the first five seconds.
    "--strict-reconfig-check=false",
    // Makes password checks fast: each worker's client sends one.
    ...(auth ? ["--bcrypt-cost=4"] : []),
  ],
});

/** The common part of the grounds whose etcd is started by `startEtcd`. */
export abstract class EtcdGround implements Ground {
  protected readonly etcd: EtcdCluster;
  abstract readonly hosts: readonly string[];
  users: Users | undefined;

  constructor(etcd: EtcdCluster) {
    this.etcd = etcd;
  }

  get version() {
    return this.etcd.version;
  }
  get members() {
    return this.etcd.members;
  }

  get access(): Access {
    return this.users === undefined ? {} : { auth: WORKER };
  }

  /** Resolves when etcd has the users, and asks for passwords if it is to do so from the start. */
  async addUsers({ auth }: GroundOptions): Promise<this> {
    if (auth === undefined) return this;
    this.users = await Users.add(this.members, () => this.leader(), LAB_PREFIX);
    if (auth === "on") await this.users.turn(true);
    return this;
  }

  leader() {
    return this.etcd.leader({ timeoutMs: 3000 }).catch(() => this.etcd.member);
  }

  async stop() {
    await this.etcd.stop();
  }
}

/** Workers connect through proxies that forward bytes. */
export abstract class LinkedGround extends EtcdGround {
  readonly links: readonly TcpProxy[];

  /** The proxies forward the end of a connection. */
  readonly watches = async () => {
    const metrics = await Promise.all(this.members.map((member) => member.metrics()));
    return metrics.reduce((sum, of) => sum + (of.get("etcd_debugging_mvcc_watcher_total") ?? 0), 0);
  };

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
