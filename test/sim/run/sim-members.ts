import type { SimEtcd } from "../../../src/testing/memory/etcd.js";
import type { Cluster } from "../../../src/testing/memory/raft/cluster.js";
import type { Link, LinkState } from "../../../src/testing/memory/network/link.js";

/** What faults do to the members of an etcd of several, and to the links of all processes to them. */
export class SimMembers {
  /** @param linksTo the links to the member at a place */
  constructor(
    private readonly etcd: SimEtcd,
    private readonly linksTo: (place: number) => readonly Link[],
  ) {}

  get #cluster(): Cluster {
    if (this.etcd.cluster === undefined) throw new Error("etcd has one member");
    return this.etcd.cluster;
  }

  get several(): boolean {
    return this.etcd.cluster !== undefined;
  }

  /** The place of the leader that has a majority. */
  get leader(): number | undefined {
    return this.etcd.cluster?.leader?.node.index;
  }

  /** The places of all members. */
  get places(): readonly number[] {
    return this.#cluster.nodes.map(({ index }) => index);
  }

  kill(place: number): void {
    this.#links(place, "cut");
    this.etcd.kill(place);
  }

  restart(place: number): void {
    this.etcd.restart(place);
    this.#links(place, "up");
  }

  /** Connections stay, and nothing is answered. */
  pause(place: number): void {
    this.#links(place, "black hole");
    this.#cluster.pause(place);
  }

  resume(place: number): void {
    this.#cluster.resume(place);
    this.#links(place, "up");
  }

  block(place: number, isBlocked: boolean): void {
    this.#cluster.block(place, isBlocked);
  }

  lag(place: number, ms: number): void {
    this.#cluster.lag(place, ms);
  }

  moveLeader(to: number): boolean {
    return this.#cluster.moveLeader(to);
  }

  cut(a: number, b: number): void {
    this.#cluster.cut(a, b);
  }

  /** From all other members; its clients still reach it. */
  isolate(place: number): void {
    for (const other of this.places) if (other !== place) this.cut(place, other);
  }

  /** From everything. */
  cutOff(place: number): void {
    this.isolate(place);
    this.#links(place, "black hole");
  }

  /** Connects all members, and all processes with the member at `place`. */
  heal(place?: number): void {
    this.#cluster.heal();
    if (place !== undefined) this.#links(place, "up");
  }

  #links(place: number, state: LinkState): void {
    for (const link of this.linksTo(place)) link.set(state);
  }
}
