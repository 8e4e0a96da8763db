import { EtcdRefusedError } from "../errors.js";
import type { Clock } from "../async/clock.js";
import type { Header } from "./port.js";
import { MemberRefusedError } from "./port-errors.js";

/** A host that has not answered for this long does not represent its cluster: it may have been restored, or be gone. */
const STANDS_MS = 30_000;

interface Answered {
  readonly id: string;
  readonly at: number;
}

/**
 * The etcd cluster that this process uses. With hosts of two clusters in one list, a fail-over would lose the leases, so a
 * host of another cluster is rejected while a host of the first one has answered recently. A restore from a snapshot gives
 * every member a new cluster ID: the new ID is adopted when no host has answered with the old one for 30 s, or when all
 * hosts have changed. Two processes that start at hosts of different clusters do not detect each other.
 */
export class ClusterIdentity {
  #id: string | undefined;
  /** The latest answer of each host. */
  readonly #byHost = new Map<string, Answered>();

  constructor(private readonly clock: Clock) {}

  /** Whether `host` has answered before and so is known to belong to this cluster. */
  knows(host: string): boolean {
    return this.#byHost.get(host)?.id === this.#id && this.#id !== undefined;
  }

  /** @throws {MemberRefusedError} if `host` belongs to another cluster than the other hosts. */
  check(host: string, { clusterId }: Header): void {
    const now = this.clock.monotonic();
    this.#byHost.set(host, { id: clusterId, at: now });
    if (clusterId === this.#id) return;
    const represents = ({ id, at }: Answered): boolean => id === this.#id && now - at < STANDS_MS;
    const ours = [...this.#byHost].find(([, answered]) => represents(answered))?.[0];
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
