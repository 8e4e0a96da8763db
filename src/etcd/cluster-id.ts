import { EtcdRefusedError } from "../errors.js";
import { MemberRefusedError, type Header } from "./rpc.js";

/**
 * Which etcd cluster this is. Hosts of two clusters in one list would lose leases and grant locks twice, so a host of
 * another cluster is refused while any host still belongs to the first one. A restore from a snapshot gives every member a
 * new cluster ID: when no host has the old one left, the new one is taken over.
 */
export class ClusterIdentity {
  #id: string | undefined;
  /** What each host answered last. */
  readonly #byHost = new Map<string, string>();

  /** `host` has answered before, so it is known to belong to this cluster. */
  knows(host: string): boolean {
    return this.#byHost.get(host) === this.#id && this.#id !== undefined;
  }

  /** @throws {MemberRefusedError} when `host` belongs to another cluster than the other hosts. */
  check(host: string, { clusterId }: Header): void {
    this.#byHost.set(host, clusterId);
    if (clusterId === this.#id) return;
    const ours = [...this.#byHost].find(([, id]) => id === this.#id)?.[0];
    if (ours === undefined) {
      this.#id = clusterId;
      return;
    }
    const details =
      `it belongs to the etcd cluster ${hex(clusterId)}, but ${ours} to ${hex(this.#id)}: ` +
      `the hosts must be members of one cluster`;
    throw new MemberRefusedError(new EtcdRefusedError("member", host, details), true);
  }
}

/** As `etcdctl` prints it. */
const hex = (id: string | undefined): string => BigInt(id ?? 0).toString(16);
